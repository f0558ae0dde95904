package cudatest

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/kernels"
)

// image returns a PTX text as the driver wants it.
func image(ptx string) unsafe.Pointer { return at(append([]byte(ptx), 0)) }

// module loads an image on a device.
func (b *bed) module(device int, ptx string) (m driver.Module) {
	b.t.Helper()
	b.on(device, func() {
		var r driver.Result
		m, r = b.ModuleLoadDataEx(image(ptx), 0, nil, nil)
		b.ok(r)
	})
	return m
}

// kernel returns a kernel "k" with the given parameters in PTX, and what it does.
func (b *bed) kernel(params string, k Kernel) driver.Func {
	b.t.Helper()
	b.gpu.RegisterKernel("k", k)
	f, r := b.ModuleGetFunction(b.module(0, ptxHead+".visible .entry k("+params+") { ret; }"), "k")
	b.ok(r)
	return f
}

// own returns one of the library's own kernels.
func (b *bed) own(device int, name string) driver.Func {
	b.t.Helper()
	f, r := b.ModuleGetFunction(b.module(device, kernels.PTX), "purecuda_"+name)
	b.ok(r)
	return f
}

// launch launches f with one thread.
func (b *bed) launch(f driver.Func, s driver.Stream, args ...unsafe.Pointer) driver.Result {
	return b.LaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, params(args...), nil)
}

// params returns the array of a launch's arguments.
func params(args ...unsafe.Pointer) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(args)) }

// ptr returns a pointer to a copy of v.
func ptr[T any](v T) unsafe.Pointer { return unsafe.Pointer(&v) }

func TestKernelSeesItsLaunch(t *testing.T) {
	bubble(t, func(b *bed) {
		type args struct {
			P driver.DevicePtr
			N uint32
		}
		s, p := b.stream(0, driver.StreamNonBlocking), b.mem(0, 16)
		runs := 0
		f := b.kernel(".param .u8 a, .param .align 8 .b8 b[16]", Kernel{
			Time: func(l *Launch) time.Duration { return time.Duration(Arg[args](l, 1).N) * ms },
			Run: func(l *Launch) {
				runs++
				require.Equal(t, [3]int{1, 2, 3}, l.Grid)
				require.Equal(t, [3]int{4, 5, 6}, l.Block)
				require.Equal(t, 6, l.Blocks())
				require.Equal(t, 7, l.SharedBytes)
				require.False(t, l.Cooperative)
				require.Equal(t, 2, l.Args())
				require.Equal(t, []byte{9}, l.Arg(0))
				require.Equal(t, uint8(9), Arg[uint8](l, 0))
				a := Arg[args](l, 1)
				words := MemoryAt[uint32](l, a.P)
				require.Len(t, words, 3)
				words[0] = a.N
			},
		})
		h := b.pinned(16)
		start := time.Now()
		b.ok(b.LaunchKernel(f, 1, 2, 3, 4, 5, 6, 7, s, params(ptr(uint8(9)), ptr(args{p + 4, 25})), nil))
		b.ok(b.MemcpyDtoHAsync(at(h), p, 16, s))
		require.Zero(t, runs, "not before its time has passed")
		b.ok(b.StreamSynchronize(s))
		require.Equal(t, 25*ms, time.Since(start))
		require.Equal(t, []byte{Poison, Poison, Poison, Poison, 25, 0, 0, 0, Poison}, h[:9])
		require.Equal(t, 1, runs)
	})
}

func TestKernelFaults(t *testing.T) {
	for name, c := range map[string]struct {
		run     func(l *Launch)
		want    driver.Result
		problem string
	}{
		"nil":           {func(l *Launch) { MemoryAt[byte](l, 0) }, driver.ErrorIllegalAddress, ""},
		"the end":       {func(l *Launch) { MemoryAt[byte](l, Arg[driver.DevicePtr](l, 0)+64) }, driver.ErrorIllegalAddress, ""},
		"too near it":   {func(l *Launch) { MemoryAt[uint64](l, Arg[driver.DevicePtr](l, 0)+60) }, driver.ErrorMisalignedAddress, ""},
		"no room":       {func(l *Launch) { MemoryAt[[9]uint64](l, Arg[driver.DevicePtr](l, 0)) }, driver.ErrorIllegalAddress, ""},
		"misaligned":    {func(l *Launch) { MemoryAt[uint32](l, Arg[driver.DevicePtr](l, 0)+2) }, driver.ErrorMisalignedAddress, ""},
		"other device":  {func(l *Launch) { Memory[byte](l, 1) }, driver.ErrorIllegalAddress, ""},
		"a failure":     {func(l *Launch) { l.Fail(driver.ErrorAssert) }, driver.ErrorAssert, ""},
		"a panic":       {func(l *Launch) { panic("oops") }, driver.ErrorLaunchFailed, "misuse: kernel k, launched at kernel_test.go:"},
		"its end":       {func(l *Launch) { runtime.Goexit() }, driver.ErrorLaunchFailed, "Run ended its goroutine"},
		"a wrong size":  {func(l *Launch) { Arg[uint32](l, 0) }, driver.ErrorLaunchFailed, "argument 0 of k has 8 bytes, and uint32 has 4"},
		"a Go pointer":  {func(l *Launch) { MemoryAt[struct{ p [2]*int }](l, Arg[driver.DevicePtr](l, 0)) }, driver.ErrorLaunchFailed, "because of *int"},
		"no argument":   {func(l *Launch) { l.Arg(2) }, driver.ErrorLaunchFailed, "argument 2 of k, which has 2"},
		"no elements":   {func(l *Launch) { MemoryAt[struct{}](l, Arg[driver.DevicePtr](l, 0)) }, driver.ErrorLaunchFailed, "a struct {} cannot be"},
		"no real fault": {func(l *Launch) { l.Fail(driver.Success) }, driver.ErrorLaunchFailed, "with the code Success"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				s, held, word := b.stream(0, driver.StreamNonBlocking), b.stream(0, driver.StreamNonBlocking), b.pinned(4)
				p, far := b.mem(0, 64), b.mem(1, 64)
				f := b.kernel(".param .u64 a, .param .u64 b", Kernel{Run: c.run, Time: func(*Launch) time.Duration { return 5 * ms }})
				release := b.gpu.Hold(Handle(held))
				waited := make(chan driver.Result)
				go func() { waited <- b.StreamSynchronize(held) }()
				b.ok(b.launch(f, s, ptr(p), ptr(far)))
				b.ok(b.MemsetD8Async(driver.HostPtr(at(word)), 1, 4, s))
				require.Equal(t, 5*ms, took(func() { require.Equal(t, c.want, <-waited) }), "nobody asked")
				require.Equal(t, c.want, b.StreamQuery(s))
				require.EqualValues(t, Poison, word[0], "what stood behind it had no effect")
				problems := ""
				for _, problem := range b.gpu.Problems() {
					if problem[:7] == "misuse:" {
						problems += problem
					}
				}
				if c.problem == "" {
					require.Empty(t, problems)
				} else {
					require.Contains(t, problems, c.problem)
				}
				release()
			})
		})
	}
}

// Memory is there for the kernels that were launched before it was freed.
func TestKernelUsesFreedMemory(t *testing.T) {
	bubble(t, func(b *bed) {
		s, word := b.stream(0, driver.StreamNonBlocking), b.pinned(8)
		pool, r := b.DeviceGetDefaultMemPool(0)
		b.ok(r)
		length := 0
		f := b.kernel(".param .u64 a", Kernel{Run: func(l *Launch) {
			a := Memory[byte](l, 0)
			length = len(a)
			a[len(a)-1] = 7
		}})
		for what, alloc := range map[string]func() driver.DevicePtr{
			"pool": func() driver.DevicePtr {
				p, r := b.MemAllocFromPoolAsync(1000, pool, s)
				b.ok(r)
				return p
			},
			"plain": func() driver.DevicePtr { return b.mem(0, 1000) },
		} {
			p := alloc()
			release := b.gpu.Hold(Handle(s))
			b.ok(b.launch(f, s, ptr(p)))
			b.ok(b.MemcpyDtoHAsync(at(word), p+999, 1, s))
			b.ok(b.MemFreeAsync(p, s))
			if what == "pool" { // the same memory again, for less
				again, r := b.MemAllocFromPoolAsync(600, pool, s)
				b.ok(r)
				require.Equal(t, p, again)
			}
			release()
			b.ok(b.StreamSynchronize(s))
			require.Equal(t, 1000, length, what)
			require.EqualValues(t, 7, word[0], what)
		}
		p := b.mem(0, 8)
		b.ok(b.MemFreeAsync(p, s))
		b.ok(b.launch(f, s, ptr(p)))
		require.Equal(t, driver.ErrorIllegalAddress, b.StreamSynchronize(s), "freed before")
	})
}

func TestKernelReachesPeers(t *testing.T) {
	bubble(t, func(b *bed) {
		s, far := b.stream(0, driver.StreamNonBlocking), b.mem(1, 64)
		b.on(0, func() { b.ok(b.CtxEnablePeerAccess(b.ctx[1], 0)) })
		b.ok(b.launch(b.own(0, "fill"), s, ptr(far), ptr(uint64(16)), ptr(uint32(0x03030303))))
		h := b.pinned(64)
		b.ok(b.MemcpyDtoHAsync(at(h), far, 64, s))
		b.ok(b.StreamSynchronize(s))
		require.EqualValues(t, 3, h[63])
	})
}

// A word that the CPU watches changes though nobody calls the driver.
func TestHostSeesKernels(t *testing.T) {
	bubble(t, func(b *bed) {
		s, h := b.stream(0, driver.StreamNonBlocking), b.pinned(4)
		word := (*uint32)(at(h))
		atomic.StoreUint32(word, 0)
		f := b.kernel(".param .u64 a", Kernel{Run: func(l *Launch) { atomic.StoreUint32(&Memory[uint32](l, 0)[0], 1) }})
		b.gpu.Run(Handle(s), 5*ms)
		b.ok(b.launch(f, s, ptr(driver.HostPtr(at(h)))))
		time.Sleep(5 * ms)
		synctest.Wait()
		require.EqualValues(t, 1, atomic.LoadUint32(word))
	})
}

// Other processes' kernels go on when one is killed; its own do not.
func TestKillStopsKernels(t *testing.T) {
	peers(t, func(a, b *bed, p *Process) {
		s, u := a.stream(0, driver.StreamNonBlocking), b.stream(0, driver.StreamNonBlocking)
		runs := 0
		k := Kernel{Run: func(*Launch) { runs++ }, Time: func(*Launch) time.Duration { return ms }}
		f, g := a.kernel("", k), b.kernel("", k)
		a.ok(a.launch(f, s))
		b.ok(b.launch(g, u))
		p.Kill()
		b.ok(b.StreamSynchronize(u))
		require.Equal(t, 1, runs)
		require.Equal(t, driver.ErrorDeinitialized, a.launch(f, s))
	})
}
