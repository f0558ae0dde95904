package image

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/internal/kernels"
)

// elf returns the header of a cubin, without anything behind it.
func elf() []byte { return append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 57)...) }

// binaries returns whole images of machine code.
func binaries() map[string][]byte {
	le := binary.LittleEndian
	sections := elf()
	le.PutUint64(sections[0x28:], 64) // two section headers behind it
	le.PutUint16(sections[0x3a:], 64)
	le.PutUint16(sections[0x3c:], 2)
	segments := elf()
	le.PutUint64(segments[0x20:], 64)
	le.PutUint16(segments[0x36:], 56)
	le.PutUint16(segments[0x38:], 1)
	return map[string][]byte{
		"header":   elf(),
		"sections": append(sections, make([]byte, 2*64)...),
		"segments": append(segments, make([]byte, 56)...),
		"fatbin":   append([]byte("\x50\xed\x55\xba\x01\x00\x10\x00\x20\x00\x00\x00\x00\x00\x00\x00"), make([]byte, 32)...),
	}
}

func TestCheck(t *testing.T) {
	for name, image := range map[string]string{
		"PTX":                    kernels.PTX,
		"PTX with a byte 0":      kernels.PTX + "\x00",
		"garbage":                "garbage",
		"one byte":               "\x7f",
		"begins like a cubin":    "\x7fEL",
		"begins like a fatbin":   "\x50\xed\x55",
		"byte 0":                 "\x00",
		"ELF but not at begin":   "x\x7fELF",
		"fatbin of a header":     "\x50\xed\x55\xba\x01\x00\x10\x00\x00\x00\x00\x00\x00\x00\x00\x00",
		"fatbin with more to it": "\x50\xed\x55\xba\x01\x00\x10\x00\x00\x00\x00\x00\x00\x00\x00\x00more",
	} {
		require.NoError(t, Check([]byte(image)), name)
	}
	require.EqualError(t, Check(nil), "the image is empty")
	require.EqualError(t, Check([]byte{}), "the image is empty")
	require.EqualError(t, Check(elf()[:63]), "the image is cut short: it has 63 bytes")
}

// An image that ends too early is not given to a driver, which would read on.
func TestCutShort(t *testing.T) {
	for name, image := range binaries() {
		require.NoError(t, Check(image), name)
		require.NoError(t, Check(append(image, 0)), name)
		for n := 4; n < len(image); n++ { // shorter, it may be anything
			require.ErrorContains(t, Check(image[:n]), "the image is cut short", "%s: %d bytes", name, n)
		}
	}
}

// Offsets so large that sums of them overflow.
func TestAbsurdHeaders(t *testing.T) {
	for _, at := range []int{0x20, 0x28} {
		image := binaries()["sections"]
		binary.LittleEndian.PutUint64(image[at:], 1<<64-1)
		require.Error(t, Check(image))
	}
	fat := binaries()["fatbin"]
	binary.LittleEndian.PutUint64(fat[8:], 1<<64-1)
	require.Error(t, Check(fat))
}

// What is whole is so with more behind it, and what is cut short is so with less.
func FuzzCheck(f *testing.F) {
	for _, image := range binaries() {
		f.Add(image, 1)
		f.Add(image[:len(image)-1], len(image))
	}
	f.Add([]byte("garbage"), 3)
	f.Add([]byte(nil), 0)
	f.Fuzz(func(t *testing.T, image []byte, n int) {
		const magic = 4 // shorter, it may be anything
		if len(image) < magic {
			return
		}
		n = magic + int(uint(n)%uint(len(image)-magic+1))
		less := image[:n:n]
		if err := Check(image); err != nil {
			require.Error(t, Check(less), "the first %d of %d bytes are whole, and all of them are not", n, len(image))
		}
		if Check(less) == nil {
			require.NoError(t, Check(append(less, image...)))
		}
	})
}
