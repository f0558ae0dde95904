package cudatest

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

func TestOwnKernels(t *testing.T) {
	bubble(t, func(b *bed) {
		s := b.stream(0, driver.StreamNonBlocking)
		floats := func(p driver.DevicePtr, n int) []float32 {
			h := b.pinned(uint64(4 * n))
			b.ok(b.MemcpyDtoHAsync(at(h), p, uint64(4*n), s))
			b.ok(b.StreamSynchronize(s))
			return unsafe.Slice((*float32)(at(h)), n)
		}
		upload := func(v ...float32) driver.DevicePtr {
			h, p := b.pinned(uint64(4*len(v))), b.mem(0, uint64(4*len(v)))
			copy(unsafe.Slice((*float32)(at(h)), len(v)), v)
			b.ok(b.MemcpyHtoDAsync(p, at(h), uint64(4*len(v)), s))
			return p
		}
		a := upload(1, 2, 3, 4, 5, 6) // 2 × 3
		c := upload(1, 0, 0, 1, 2, 3) // 3 × 2
		dst := upload(9, 9, 9, 9)
		m, n, k := ptr(uint32(2)), ptr(uint32(2)), ptr(uint32(3))
		b.ok(b.LaunchKernel(b.own(0, "matmul"), 1, 1, 1, 256, 1, 1, 0, s, params(ptr(dst), ptr(a), ptr(c), m, n, k), nil))
		require.Equal(t, []float32{7, 11, 16, 23}, floats(dst, 4))
		b.ok(b.launch(b.own(0, "affine"), s, ptr(affineArgs{dst, a, 2, 1, 3})))
		require.Equal(t, []float32{3, 5, 7, 23}, floats(dst, 4))
		b.ok(b.launch(b.own(0, "add"), s, ptr(dst), ptr(a), ptr(c), ptr(uint64(4))))
		require.Equal(t, []float32{2, 2, 3, 5}, floats(dst, 4))
		errors := b.mem(0, 4)
		b.ok(b.MemsetD32Async(errors, 0, 1, s))
		b.ok(b.launch(b.own(0, "fill"), s, ptr(dst), ptr(uint64(3)), ptr(uint32(1))))
		b.ok(b.launch(b.own(0, "check"), s, ptr(dst), ptr(uint64(4)), ptr(uint32(1)), ptr(errors)))
		require.Equal(t, *(*float32)(ptr(uint32(1))), floats(errors, 1)[0], "one element differs")
		require.Equal(t, 7*ms, took(func() {
			b.ok(b.launch(b.own(0, "spin"), s, ptr(uint64(7*ms))))
			b.ok(b.StreamSynchronize(s))
		}))
		b.ok(b.launch(b.own(0, "trap"), s))
		require.Equal(t, driver.ErrorLaunchFailed, b.StreamSynchronize(s))
		require.NotContains(t, b.gpu.Problems(), "misuse")
	})
}

// A product beyond the grid is not calculated; one beyond memory is a fault.
func TestMatmulBounds(t *testing.T) {
	b := newBed(t, Config{})
	s, dst, one := b.stream(0, driver.StreamNonBlocking), b.mem(0, 4*100), b.mem(0, 4*100)
	f := b.own(0, "matmul")
	b.ok(b.MemsetD8Async(dst, 0, 400, s))
	b.ok(b.launch(b.own(0, "fill"), s, ptr(one), ptr(uint64(100)), ptr(uint32(0x3f800000))))
	product := func(m, n, k uint32) driver.Result {
		r := b.LaunchKernel(f, 1, 1, 1, 256, 1, 1, 0, s, params(ptr(dst), ptr(one), ptr(one), ptr(m), ptr(n), ptr(k)), nil)
		return max(r, b.StreamSynchronize(s))
	}
	b.ok(product(1, 100, 1))
	h := b.pinned(400)
	b.ok(b.MemcpyDtoHAsync(at(h), dst, 400, s))
	b.ok(b.StreamSynchronize(s))
	got := unsafe.Slice((*float32)(at(h)), 100)
	require.Equal(t, []float32{1, 0}, got[63:65])
	require.Equal(t, driver.ErrorIllegalAddress, product(11, 11, 1))
}

func TestRendezvousNeedsRoom(t *testing.T) {
	b := newBed(t, Config{})
	s, p, f := b.stream(0, driver.StreamNonBlocking), b.mem(0, 1<<20), b.own(0, "rendezvous")
	b.ok(b.MemsetD8Async(p, 0, 1<<20, s))
	b.ok(b.LaunchKernel(f, 100, 1, 1, 1, 1, 1, 0, s, params(ptr(p), ptr(p+4)), nil))
	b.ok(b.StreamSynchronize(s))
	b.ok(b.LaunchKernel(f, 33*132, 1, 1, 1, 1, 1, 0, s, params(ptr(p), ptr(p+4)), nil))
	require.Equal(t, driver.ErrorLaunchFailed, b.StreamSynchronize(s), "a GPU would hang")
}
