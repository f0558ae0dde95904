package ipc

import (
	"os"
	"time"

	"github.com/purecuda/cuda/driver"
)

// link is a connection that carries frames.
type link interface {
	// read returns the next frame without its length, which is the caller's until the
	// next read, and the file that came with it, or nil. io.EOF comes only between
	// frames; a [violation] says that the stream is not of frames. A frame that has come
	// by the deadline is read, however late that is; after another error there is no
	// going on.
	read() ([]byte, *os.File, error)
	// write writes a frame, and a file unless that is nil.
	write(frame []byte, f *os.File) error
	// readBy makes reads fail that do not succeed by then; likewise writeBy.
	readBy(time.Time)
	writeBy(time.Time)
	// close ends all reads and writes. It does not block.
	close()
}

// Credentials say who is at the other end of a connection, by the kernel's word.
type Credentials struct {
	PID int
	UID uint32 // the effective user
	GID uint32
}

// Options are the options of [Listen] and [Dial]. The zero value is the recommended
// one.
type Options struct {
	// Allow decides who may be at the other end: an error refuses, and is passed on
	// to who is refused. If it is nil, only processes of the same (effective) user are
	// allowed; root is another user, unless this process is root's. Since a socket that
	// Listen makes is open to its user alone, letting others in takes os.Chmod as well.
	Allow func(Credentials) error

	processes *driver.Processes
	patience  time.Duration // with the handshake of who dials
}
