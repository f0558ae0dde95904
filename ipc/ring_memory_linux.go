package ipc

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/purecuda/cuda"
)

// sharedMemory is a mapping of memory that two processes share.
type sharedMemory struct{ bytes []byte }

// The numbers that package syscall lacks.
const (
	memfdCloexec      = 1
	memfdAllowSealing = 2
	fcntlAddSeals     = 1033
	fcntlGetSeals     = 1034
	sealSeal          = 1
	sealShrink        = 2
	sealGrow          = 4
)

var memfdCreate = map[string]uintptr{"amd64": 319, "arm64": 279, "386": 356, "arm": 385, "riscv64": 279, "loong64": 279, "ppc64le": 360, "s390x": 350}[runtime.GOARCH]

// newSharedFile makes a file in memory with n zero bytes, which nobody can make
// smaller: touching a mapping of what is gone would end the process.
func newSharedFile(n int) (*os.File, error) {
	if memfdCreate == 0 {
		return nil, &cuda.Error{Op: "shared memory", Err: syscall.ENOSYS, Detail: "not known how on " + runtime.GOARCH}
	}
	name := []byte("cuda ring\x00")
	fd, _, errno := syscall.Syscall(memfdCreate, uintptr(unsafe.Pointer(&name[0])), memfdCloexec|memfdAllowSealing, 0)
	if errno != 0 {
		return nil, &cuda.Error{Op: "shared memory", Err: os.NewSyscallError("memfd_create", errno)}
	}
	f := os.NewFile(fd, "shared memory")
	if err := f.Truncate(int64(n)); err != nil {
		f.Close()
		return nil, &cuda.Error{Op: "shared memory", Err: err}
	}
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, fcntlAddSeals, sealSeal|sealShrink|sealGrow); errno != 0 {
		f.Close()
		return nil, &cuda.Error{Op: "shared memory", Err: os.NewSyscallError("fcntl F_ADD_SEALS", errno)}
	}
	return f, nil
}

// mapShared maps n bytes of a file of newSharedFile, which may be another process's
// work.
func mapShared(f *os.File, n int) (*sharedMemory, error) {
	const op = "shared memory"
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, &cuda.Error{Op: op, Err: err}
	}
	m := new(sharedMemory)
	controlErr := raw.Control(func(fd uintptr) {
		seals, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, fcntlGetSeals, 0)
		var info syscall.Stat_t
		switch {
		case errno != 0 || seals&sealShrink == 0:
			err = &cuda.Error{Op: op, Err: cuda.ErrInvalid, Detail: "the file is not sealed memory"}
		case syscall.Fstat(int(fd), &info) != nil || info.Size < int64(n):
			err = &cuda.Error{Op: op, Err: cuda.ErrInvalid, Detail: fmt.Sprintf("the file has fewer than %d bytes", n)}
		default:
			if m.bytes, err = syscall.Mmap(int(fd), 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED); err != nil {
				err = &cuda.Error{Op: op, Err: os.NewSyscallError("mmap", err)}
			}
		}
	})
	if controlErr != nil {
		err = &cuda.Error{Op: op, Err: controlErr}
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (m *sharedMemory) close() error {
	b := m.bytes
	m.bytes = nil
	if b == nil {
		return nil
	}
	return os.NewSyscallError("munmap", syscall.Munmap(b))
}
