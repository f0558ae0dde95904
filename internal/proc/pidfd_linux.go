package proc

import (
	"os"
	"syscall"
	"unsafe"
)

const (
	sysPidfdOpen  = 434                // on all architectures that CUDA runs on
	pidfdNonblock = syscall.O_NONBLOCK // since Linux 5.10
)

// openPidfd returns a file that becomes readable when the process that has a number
// now is gone, ready for Go's network poller. It is nil where there are no such
// files: before Linux 5.3, in gVisor, and where a sandbox forbids them.
func openPidfd(pid int) *os.File {
	fd, _, errno := syscall.RawSyscall(sysPidfdOpen, uintptr(pid), pidfdNonblock, 0)
	if errno == syscall.EINVAL {
		if fd, _, errno = syscall.RawSyscall(sysPidfdOpen, uintptr(pid), 0, 0); errno == 0 {
			_ = syscall.SetNonblock(int(fd), true)
		}
	}
	if errno != 0 {
		return nil
	}
	return os.NewFile(fd, "pidfd") // like all, it is closed on exec
}

// await waits without a thread until the process of a pidfd is gone. It fails if the
// pidfd is closed first, or cannot be waited for.
func await(pidfd *os.File) error {
	c, err := pidfd.SyscallConn()
	if err != nil {
		return err
	}
	return c.Read(readable)
}

// readable asks the kernel, for the poller may wake one for nothing.
func readable(fd uintptr) bool {
	const pollIn = 1
	ask := struct {
		fd              int32
		events, revents int16
	}{int32(fd), pollIn, 0}
	var now syscall.Timespec
	n, _, errno := syscall.RawSyscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&ask)), 1, uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return errno == 0 && n == 1 && ask.revents&pollIn != 0
}
