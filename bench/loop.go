//go:build linux && (amd64 || arm64) && !nocuda && !purecuda_syscalln

package main

import (
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/bench"
)

// maxArgs is how many arguments a call can have in loop.c.
const maxArgs = 11

// ccall is "struct call" of loop.c.
type ccall struct {
	fn      uintptr
	n, load uint32
	arg     [maxArgs]uint64
}

// library is an opened C library.
type library uintptr

func openLibrary(path string) (library, error) {
	runtime.LockOSThread() // the system's loader keeps an error's text per thread
	defer runtime.UnlockOSThread()
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	return library(handle), err
}

// find returns the address of a function, or that of the one that stands in for it
// in older drivers.
func (l library) find(symbol string) (uintptr, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fn, err := purego.Dlsym(uintptr(l), symbol)
	if err == nil {
		return fn, nil
	}
	for _, f := range driver.Functions {
		if f.Symbol == symbol && f.Else != "" {
			return purego.Dlsym(uintptr(l), f.Else)
		}
	}
	return 0, err
}

// calls fills in the structs for the driver calls of an operation.
func (l library) calls(described []bench.Call) ([]ccall, error) {
	var calls []ccall
	for _, d := range described {
		if len(d.Args) > maxArgs {
			return nil, fmt.Errorf("%s has %d arguments, at most %d are possible", d.Symbol, len(d.Args), maxArgs)
		}
		fn, err := l.find(d.Symbol)
		if err != nil {
			return nil, err
		}
		c := ccall{fn: fn, n: uint32(len(d.Args)), load: d.Load}
		copy(c.arg[:], d.Args)
		calls = append(calls, c)
	}
	return calls, nil
}

// cloop is the compiled loop.c.
type cloop struct{ loop, threads uintptr }

func openLoop(path string) (*cloop, error) {
	l, err := openLibrary(path)
	if err != nil {
		return nil, err
	}
	c := new(cloop)
	if c.loop, err = l.find("purecuda_loop"); err != nil {
		return nil, err
	}
	if c.threads, err = l.find("purecuda_threads"); err != nil {
		return nil, err
	}
	return c, nil
}

// run does the sequence of calls n times on this thread.
func (c *cloop) run(calls []ccall, n int) (time.Duration, error) {
	t, _, _ := purego.SyscallN(c.loop, uintptr(unsafe.Pointer(&calls[0])), uintptr(len(calls)), uintptr(n))
	return took(t)
}

// runThreads does n times on each of several threads of C's own what belongs to it:
// the calls have all threads' sequences, one after the other. setCurrent is the
// address of cuCtxSetCurrent.
func (c *cloop) runThreads(calls []ccall, threads, n int, setCurrent uintptr, ctx driver.Context) (time.Duration, error) {
	t, _, _ := purego.SyscallN(c.threads, uintptr(unsafe.Pointer(&calls[0])), uintptr(len(calls)/threads),
		uintptr(threads), uintptr(n), setCurrent, uintptr(ctx))
	return took(t)
}

// took tells a time from the result of a call that failed, which C gives negative.
func took(t uintptr) (time.Duration, error) {
	if ns := int64(t); ns >= 0 {
		return time.Duration(ns), nil
	}
	return 0, driver.Result(-int64(t))
}

// address returns that of a word on the heap, for C to write to.
func address(word *uint64) uintptr { return uintptr(unsafe.Pointer(word)) }
