package ipc

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// wire is a link over a unix socket.
type wire struct {
	c    *net.UnixConn
	body []byte
	oob  []byte
	late int // bytes that were read after the deadline
}

// lateLimit is how much can have come by a deadline: more than a socket holds.
const lateLimit = 1 << 20

func newLink(c *net.UnixConn) link {
	return &wire{c: c, oob: make([]byte, syscall.CmsgSpace(4*4))} // four files: more than one shows
}

func (w *wire) read() (_ []byte, _ *os.File, err error) {
	var files []int
	defer func() {
		if err != nil {
			closeAll(files)
		}
	}()
	// No read goes beyond the end of a frame: so a file that comes is this frame's.
	var length [4]byte
	if err := w.fill(length[:], &files); err != nil {
		return nil, nil, err
	}
	n := binary.LittleEndian.Uint32(length[:])
	if n > frameLimit {
		return nil, nil, violated("a message of %d bytes, more than %d", n, frameLimit)
	}
	if cap(w.body) < int(n) {
		w.body = make([]byte, n)
	}
	body := w.body[:n]
	if err := w.fill(body, &files); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, nil, err
	}
	if len(files) == 0 {
		return body, nil, nil
	}
	return body, os.NewFile(uintptr(files[0]), "received file"), nil
}

// fill fills b, and appends the files that come with it. The second is one too many, and
// ends it at once: a message that never ends must not bring ever more.
func (w *wire) fill(b []byte, files *[]int) error {
	for got := 0; got < len(b); {
		n, oobn, flags, _, err := w.c.ReadMsgUnix(b[got:], w.oob)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			n, oobn, flags, err = w.readLate(b[got:], err)
		}
		if oobn > 0 {
			if came, parseErr := parseFiles(w.oob[:oobn]); parseErr != nil {
				return parseErr
			} else {
				*files = append(*files, came...)
			}
		}
		switch {
		case flags&syscall.MSG_CTRUNC != 0:
			return violated("too many files with a message")
		case len(*files) > 1:
			return violated("%d files with a message", len(*files))
		case (err == nil || errors.Is(err, io.EOF)) && n == 0:
			if got > 0 {
				return io.ErrUnexpectedEOF
			}
			return io.EOF
		case err != nil:
			return err
		}
		got += n
	}
	return nil
}

// readLate reads what has come before the deadline: this goroutine may have been kept from
// it. If there is nothing it returns err. A peer that goes on talking is not listened to
// for ever.
func (w *wire) readLate(b []byte, err error) (n, oobn, flags int, _ error) {
	raw, rawErr := w.c.SyscallConn()
	if rawErr != nil || w.late >= lateLimit {
		return 0, 0, 0, err
	}
	var readErr error
	if rawErr = raw.Control(func(fd uintptr) {
		n, oobn, flags, _, readErr = syscall.Recvmsg(int(fd), b, w.oob, syscall.MSG_DONTWAIT|syscall.MSG_CMSG_CLOEXEC)
	}); rawErr != nil {
		return 0, 0, 0, rawErr
	}
	switch readErr {
	case nil:
		w.late += n
		return n, oobn, flags, nil
	case syscall.EAGAIN:
		return 0, 0, 0, err
	}
	return 0, 0, 0, os.NewSyscallError("recvmsg", readErr)
}

func parseFiles(oob []byte) (files []int, err error) {
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		if m.Header.Level != syscall.SOL_SOCKET || m.Header.Type != syscall.SCM_RIGHTS {
			continue
		}
		came, err := syscall.ParseUnixRights(&m)
		if err != nil {
			closeAll(files)
			return nil, err
		}
		files = append(files, came...)
	}
	return files, nil
}

func closeAll(files []int) {
	for _, fd := range files {
		_ = syscall.Close(fd)
	}
}

func (w *wire) write(frame []byte, f *os.File) error {
	if f == nil {
		_, err := w.c.Write(frame)
		return err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var n int
	var writeErr error
	if err := raw.Control(func(fd uintptr) {
		n, _, writeErr = w.c.WriteMsgUnix(frame, syscall.UnixRights(int(fd)), nil)
	}); err != nil {
		return err
	}
	if writeErr == nil && n < len(frame) {
		_, writeErr = w.c.Write(frame[n:])
	}
	return writeErr
}

func (w *wire) readBy(t time.Time)  { _ = w.c.SetReadDeadline(t) }
func (w *wire) writeBy(t time.Time) { _ = w.c.SetWriteDeadline(t) }
func (w *wire) close()              { _ = w.c.Close() }

// hungUp reports whether the other end has closed the connection: with what it had not
// read yet, if it was reset.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// duplicate returns another descriptor of the same file.
func duplicate(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd uintptr
	var errno syscall.Errno
	if err := raw.Control(func(own uintptr) {
		fd, _, errno = syscall.Syscall(syscall.SYS_FCNTL, own, syscall.F_DUPFD_CLOEXEC, 0)
	}); err != nil {
		return nil, err
	}
	if errno != 0 {
		return nil, os.NewSyscallError("fcntl F_DUPFD_CLOEXEC", errno)
	}
	return os.NewFile(fd, f.Name()), nil
}

// credentials returns who has dialed, or listens, at the other end.
func credentials(c *net.UnixConn) (Credentials, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Credentials{}, err
	}
	var u *syscall.Ucred
	controlErr := raw.Control(func(fd uintptr) {
		u, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err = errors.Join(controlErr, os.NewSyscallError("getsockopt SO_PEERCRED", err)); err != nil {
		return Credentials{}, err
	}
	return Credentials{PID: int(u.Pid), UID: u.Uid, GID: u.Gid}, nil
}
