//go:build linux && (amd64 || arm64) && !nocuda

package loader

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
)

// errTruncated marks files that end before their contents do. Loading one kills
// the process: the missing pages are mapped, and reading them raises SIGBUS.
var errTruncated = errors.New("damaged: the file is shorter than its contents")

var errNotELF = errors.New("not a shared library: it does not begin as an ELF file")

// checkFile checks that path is a shared library for this machine, whole as far
// as the system's loader will map it.
func checkFile(path string) error {
	size, err := regularFile(path)
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return reason(err)
	}
	defer f.Close()
	return checkELF(f, size)
}

// checkELF is checkFile for size bytes of r. It reads the headers alone and
// trusts no number in them.
func checkELF(r io.ReaderAt, size int64) error {
	head := make([]byte, binary.Size(elf.Header64{}))
	n, err := r.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return reason(err)
	}
	head = head[:n]
	if n == 0 {
		return errors.New("an empty file")
	}
	if !bytes.HasPrefix(head, []byte(elf.ELFMAG)) {
		return errNotELF
	}
	if n < elf.EI_NIDENT {
		return errTruncated
	}
	if class := elf.Class(head[elf.EI_CLASS]); class != elf.ELFCLASS64 {
		return fmt.Errorf("a library of another word size (%v); this program needs a 64-bit one", class)
	}
	if data := elf.Data(head[elf.EI_DATA]); data != elf.ELFDATA2LSB {
		return fmt.Errorf("a library of another byte order (%v); this program needs little-endian", data)
	}
	var h elf.Header64
	if n < binary.Size(h) {
		return errTruncated
	}
	if _, err := binary.Decode(head, binary.LittleEndian, &h); err != nil {
		return err
	}
	want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	if m := elf.Machine(h.Machine); m != want {
		return fmt.Errorf("a library for another machine (%v); this program needs %v", m, want)
	}
	if t := elf.Type(h.Type); t != elf.ET_DYN {
		return fmt.Errorf("not a shared library but another kind of ELF file (%v)", t)
	}
	if !within(h.Shoff, uint64(h.Shentsize)*uint64(h.Shnum), size) {
		return fmt.Errorf("%w: it has %d bytes and its section headers end later", errTruncated, size)
	}
	return checkSegments(r, h, size)
}

// checkSegments checks that the file holds all bytes that will be mapped.
func checkSegments(r io.ReaderAt, h elf.Header64, size int64) error {
	var p elf.Prog64
	entry := binary.Size(p)
	if h.Phnum == 0 || int(h.Phentsize) != entry {
		return errors.New("damaged: its program headers make no sense")
	}
	table := make([]byte, int(h.Phnum)*entry)
	if !within(h.Phoff, uint64(len(table)), size) {
		return fmt.Errorf("%w: it has %d bytes and its program headers end later", errTruncated, size)
	}
	if _, err := io.ReadFull(io.NewSectionReader(r, int64(h.Phoff), int64(len(table))), table); err != nil {
		return reason(err)
	}
	loads := 0
	for ; len(table) > 0; table = table[entry:] {
		if _, err := binary.Decode(table, binary.LittleEndian, &p); err != nil {
			return err
		}
		if elf.ProgType(p.Type) != elf.PT_LOAD {
			continue
		}
		loads++
		if !within(p.Off, p.Filesz, size) {
			return fmt.Errorf("%w: it has %d bytes and a segment of %d bytes begins at %d", errTruncated, size, p.Filesz, p.Off)
		}
	}
	if loads == 0 {
		return errors.New("damaged: it has nothing to load")
	}
	return nil
}

// within reports whether n bytes at off lie in a file of size bytes.
func within(off, n uint64, size int64) bool {
	return off <= uint64(size) && n <= uint64(size)-off
}
