// Package image looks at the images that modules are loaded from, before the driver
// does, and keeps what the driver's compiler says about them.
package image

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

var errEmpty = errors.New("the image is empty")

// Check refuses an image that is cut short. The driver is told no length and would
// read beyond it.
func Check(image []byte) error {
	if len(image) == 0 {
		return errEmpty
	}
	need, ok := size(image)
	if !ok || need > uint64(len(image)) {
		return fmt.Errorf("the image is cut short: it has %d bytes", len(image))
	}
	return nil
}

// size returns how many bytes an image of machine code must have at least, by its
// headers; 0 for anything else. Not ok: not even the header is whole.
func size(image []byte) (n uint64, ok bool) {
	le := binary.LittleEndian
	switch {
	case bytes.HasPrefix(image, []byte("\x7fELF")): // a cubin
		const header = 64
		if len(image) < header {
			return 0, false
		}
		table := func(at uint64, size, count uint16) uint64 { return min(at, 1<<60) + uint64(size)*uint64(count) }
		programs := table(le.Uint64(image[0x20:]), le.Uint16(image[0x36:]), le.Uint16(image[0x38:]))
		sections := table(le.Uint64(image[0x28:]), le.Uint16(image[0x3a:]), le.Uint16(image[0x3c:]))
		return max(header, programs, sections), true
	case bytes.HasPrefix(image, []byte("\x50\xed\x55\xba")): // a fatbin
		const header = 16
		if len(image) < header {
			return 0, false
		}
		return uint64(le.Uint16(image[6:])) + min(le.Uint64(image[8:]), 1<<60), true
	}
	return 0, true
}
