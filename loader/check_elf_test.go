//go:build linux && (amd64 || arm64) && !nocuda

package loader

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"math"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// image makes an ELF file: a header, two segments, some contents, a section
// header. edit may spoil the headers.
func image(edit func(h *elf.Header64, segments []elf.Prog64)) []byte {
	const contents = 1000
	h := elf.Header64{
		Ident:     [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1},
		Type:      uint16(elf.ET_DYN),
		Machine:   uint16(elf.EM_X86_64),
		Phoff:     64,
		Phentsize: 56,
		Phnum:     2,
		Shoff:     64 + 2*56 + contents,
		Shentsize: 64,
		Shnum:     1,
	}
	if runtime.GOARCH == "arm64" {
		h.Machine = uint16(elf.EM_AARCH64)
	}
	segments := []elf.Prog64{
		{Type: uint32(elf.PT_LOAD), Off: 0, Filesz: 64 + 2*56 + contents},
		{Type: uint32(elf.PT_NOTE), Off: 64 + 2*56, Filesz: 8},
	}
	if edit != nil {
		edit(&h, segments)
	}
	var b bytes.Buffer
	binary.Write(&b, binary.LittleEndian, h)
	binary.Write(&b, binary.LittleEndian, segments)
	b.Write(make([]byte, contents))
	binary.Write(&b, binary.LittleEndian, elf.Section64{})
	return b.Bytes()
}

func checkBytes(data []byte) error { return checkELF(bytes.NewReader(data), int64(len(data))) }

func TestCheckELF(t *testing.T) {
	whole := image(nil)
	require.NoError(t, checkBytes(whole))
	for n := range whole {
		err := checkBytes(whole[:n])
		require.Error(t, err, "%d of %d bytes", n, len(whole))
		if n >= 4 {
			require.ErrorIs(t, err, errTruncated, "%d of %d bytes", n, len(whole))
		}
	}

	for _, c := range []struct {
		name, reason string
		edit         func(h *elf.Header64, segments []elf.Prog64)
	}{
		{"32 bits", "ELFCLASS32", func(h *elf.Header64, _ []elf.Prog64) { h.Ident[elf.EI_CLASS] = byte(elf.ELFCLASS32) }},
		{"no class", "word size", func(h *elf.Header64, _ []elf.Prog64) { h.Ident[elf.EI_CLASS] = 77 }},
		{"big-endian", "ELFDATA2MSB", func(h *elf.Header64, _ []elf.Prog64) { h.Ident[elf.EI_DATA] = byte(elf.ELFDATA2MSB) }},
		{"machine", "EM_PPC64", func(h *elf.Header64, _ []elf.Prog64) { h.Machine = uint16(elf.EM_PPC64) }},
		{"program", "ET_EXEC", func(h *elf.Header64, _ []elf.Prog64) { h.Type = uint16(elf.ET_EXEC) }},
		{"object", "ET_REL", func(h *elf.Header64, _ []elf.Prog64) { h.Type = uint16(elf.ET_REL) }},
		{"no segments", "program headers", func(h *elf.Header64, _ []elf.Prog64) { h.Phnum = 0 }},
		{"odd segments", "program headers", func(h *elf.Header64, _ []elf.Prog64) { h.Phentsize = 55 }},
		{"many segments", "shorter", func(h *elf.Header64, _ []elf.Prog64) { h.Phnum = math.MaxUint16 }},
		{"segments far away", "shorter", func(h *elf.Header64, _ []elf.Prog64) { h.Phoff = math.MaxUint64 - 10 }},
		{"sections far away", "shorter", func(h *elf.Header64, _ []elf.Prog64) { h.Shoff = math.MaxUint64 - 10 }},
		{"nothing to load", "nothing to load", func(_ *elf.Header64, s []elf.Prog64) { s[0].Type = uint32(elf.PT_NOTE) }},
		{"long segment", "shorter", func(_ *elf.Header64, s []elf.Prog64) { s[0].Filesz = math.MaxUint64 }},
		{"segment far away", "shorter", func(_ *elf.Header64, s []elf.Prog64) { s[0].Off = math.MaxUint64 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.ErrorContains(t, checkBytes(image(c.edit)), c.reason)
		})
	}
}

func FuzzCheckELF(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("/* GNU ld script */"))
	f.Add(image(nil))
	f.Add(image(func(h *elf.Header64, s []elf.Prog64) { h.Phnum, s[0].Off = 3, math.MaxInt64 }))
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := checkBytes(data); err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		// Whatever is accepted is no shorter than what will be mapped of it.
		file, err := elf.NewFile(bytes.NewReader(data))
		if err != nil {
			return // its sections may be nonsense: they are not mapped
		}
		for _, p := range file.Progs {
			if p.Type == elf.PT_LOAD {
				require.LessOrEqual(t, p.Off+p.Filesz, uint64(len(data)))
			}
		}
	})
}
