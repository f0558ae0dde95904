//go:build linux && (amd64 || arm64) && !nocuda && !purecuda_syscalln

package main

import (
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/purecuda/cuda/driver"
)

// argument is one of those that are loaded anew for each call.
type argument struct {
	i    int
	word *uint64
}

// arguments returns a call's arguments, and which of them to load before it.
func (c *ccall) arguments() (args []uintptr, loads []argument) {
	args = make([]uintptr, c.n)
	for i := range args {
		args[i] = uintptr(c.arg[i])
		if c.load>>i&1 != 0 {
			loads = append(loads, argument{i, *(**uint64)(unsafe.Pointer(&c.arg[i]))})
		}
	}
	return args, loads
}

// syscallN does the calls by purego.SyscallN as fast as its plain user can: the
// arguments are in a slice that lives on, so that nothing is allocated.
func syscallN(calls []ccall) func(n int) error {
	type call struct {
		fn    uintptr
		args  []uintptr
		loads []argument
	}
	var all []call
	for _, c := range calls {
		args, loads := c.arguments()
		all = append(all, call{c.fn, args, loads})
	}
	if len(all) == 1 && len(all[0].loads) == 0 {
		fn, args := all[0].fn, all[0].args
		return func(n int) error {
			for range n {
				if r, _, _ := purego.SyscallN(fn, args...); int32(r) != 0 {
					return driver.Result(int32(r))
				}
			}
			return nil
		}
	}
	return func(n int) error {
		for range n {
			for i := range all {
				c := &all[i]
				for _, l := range c.loads {
					c.args[l.i] = uintptr(*l.word)
				}
				if r, _, _ := purego.SyscallN(c.fn, c.args...); int32(r) != 0 {
					return driver.Result(int32(r))
				}
			}
		}
		return nil
	}
}

// registerFunc does the calls by Go functions that purego.RegisterFunc has made.
func registerFunc(calls []ccall) (func(n int) error, error) {
	type call struct {
		f     func(a []uintptr) int32
		args  []uintptr
		loads []argument
	}
	var all []call
	for _, c := range calls {
		f, err := registered(c.fn, int(c.n))
		if err != nil {
			return nil, err
		}
		args, loads := c.arguments()
		all = append(all, call{f, args, loads})
	}
	return func(n int) error {
		for range n {
			for i := range all {
				c := &all[i]
				for _, l := range c.loads {
					c.args[l.i] = uintptr(*l.word)
				}
				if r := c.f(c.args); r != 0 {
					return driver.Result(r)
				}
			}
		}
		return nil
	}, nil
}

// registered registers a function of n arguments. The closure around it costs a
// nanosecond or two.
func registered(fn uintptr, n int) (func(a []uintptr) int32, error) {
	switch n {
	case 0:
		var f func() int32
		purego.RegisterFunc(&f, fn)
		return func([]uintptr) int32 { return f() }, nil
	case 1:
		var f func(a uintptr) int32
		purego.RegisterFunc(&f, fn)
		return func(a []uintptr) int32 { return f(a[0]) }, nil
	case 2:
		var f func(a, b uintptr) int32
		purego.RegisterFunc(&f, fn)
		return func(a []uintptr) int32 { return f(a[0], a[1]) }, nil
	case 3:
		var f func(a, b, c uintptr) int32
		purego.RegisterFunc(&f, fn)
		return func(a []uintptr) int32 { return f(a[0], a[1], a[2]) }, nil
	case 4:
		var f func(a, b, c, d uintptr) int32
		purego.RegisterFunc(&f, fn)
		return func(a []uintptr) int32 { return f(a[0], a[1], a[2], a[3]) }, nil
	case 11:
		var f func(a, b, c, d, e, g, h, i, j, k, l uintptr) int32
		purego.RegisterFunc(&f, fn)
		return func(a []uintptr) int32 {
			return f(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10])
		}, nil
	}
	return nil, fmt.Errorf("no function of %d arguments was foreseen", n)
}
