package image

import (
	"bytes"
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

// logSize is how much of the compiler's messages is kept.
const logSize = 16 << 10

// Log is what ModuleLoadDataEx writes the compiler's messages to. It must be
// reachable until the call has returned. It is one piece of memory that points into
// itself: it must be on the heap, where nothing moves, and NewLog sees to that.
type Log struct {
	options      [4]driver.JITOption
	values       [4]uintptr // in C pointers, some of which are numbers
	errors, info [logSize]byte
}

// NewLog returns an empty log.
//
//go:noinline
func NewLog() *Log {
	l := &Log{options: [4]driver.JITOption{
		driver.JITErrorLogBuffer, driver.JITErrorLogBufferSize, driver.JITInfoLogBuffer, driver.JITInfoLogBufferSize,
	}}
	l.values = [4]uintptr{
		uintptr(unsafe.Pointer(&l.errors)), logSize, uintptr(unsafe.Pointer(&l.info)), logSize,
	}
	return l
}

// Options returns the options with which the driver writes to l, as
// ModuleLoadDataEx takes them.
func (l *Log) Options() (count uint32, options, values unsafe.Pointer) {
	return uint32(len(l.options)), unsafe.Pointer(&l.options), unsafe.Pointer(&l.values)
}

// String returns the errors, or the other messages where there are none.
func (l *Log) String() string {
	for _, log := range [][]byte{l.errors[:], l.info[:]} {
		text, _, _ := bytes.Cut(log, []byte{0})
		if s := string(bytes.TrimSpace(text)); s != "" {
			return s
		}
	}
	return ""
}
