package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// counters is where PyTorch has its counters.
const counters = "/dev/shm"

// A file of PyTorch's with counters: a header of 64 bytes and 10000 numbers of 8
// bytes each. See torch/csrc/CudaIPCTypes.h and aten/src/ATen/MapAllocator.h.
const (
	counterHeader = 64
	counterCount  = 10000
	counterSize   = counterHeader + 8*counterCount
)

// letGo tells PyTorch that a tensor that it has shared is no longer used here. That
// is what PyTorch does when it is the consumer: for each tensor that it shares, it
// keeps a counter in a file, which the consumer decrements. Until then PyTorch keeps
// the memory, even if its own program has dropped the tensor.
//
// This is PyTorch's private format. So whatever does not look as it does in PyTorch
// 2.11 is left alone. The number that is left is returned.
func letGo(dir, name string, index int) (left int64, err error) {
	path, err := counterFile(dir, name)
	if err != nil {
		return 0, err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return 0, err
	case info.Size() != counterSize:
		return 0, fmt.Errorf("%s has %d bytes, and not %d: it is of a PyTorch with another format", path, info.Size(), counterSize)
	case index < 0 || index >= counterCount:
		return 0, fmt.Errorf("%s has %d counters, and no number %d", path, counterCount, index)
	}
	mapped, err := syscall.Mmap(int(f.Fd()), 0, counterSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return 0, os.NewSyscallError("mmap", err)
	}
	defer func() { _ = syscall.Munmap(mapped) }()
	counter := (*int64)(unsafe.Pointer(&mapped[counterHeader+8*index]))
	for {
		n := atomic.LoadInt64(counter)
		if n <= 0 {
			return n, fmt.Errorf("counter %d of %s is %d: nobody uses the tensor, or the format is another", index, path, n)
		}
		if atomic.CompareAndSwapInt64(counter, n, n-1) {
			return n - 1, nil
		}
	}
}

// clearUp removes the counters of a PyTorch that was killed: nobody else does.
func clearUp(dir, name string) error {
	path, err := counterFile(dir, name)
	if err != nil {
		return err
	}
	if err := os.Remove(path); !os.IsNotExist(err) {
		return err
	}
	return nil
}

// counterFile returns the path of the file to which a name like /torch_123_456_0
// belongs.
func counterFile(dir, name string) (string, error) {
	base, found := strings.CutPrefix(name, "/")
	if !found || !strings.HasPrefix(base, "torch_") || strings.ContainsRune(base, '/') {
		return "", fmt.Errorf("%q is no name of a file with PyTorch's counters", name)
	}
	return filepath.Join(dir, base), nil
}
