package rules_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/internal/testgpu"
)

// copyAcross copies plain and pool memory of each device to the other, on the
// streams of both.
func copyAcross(t *testing.T, devices []*cuda.Device) {
	t.Helper()
	const n = 1 << 16
	streams := []*cuda.Stream{testgpu.NewStream(t, devices[0], nil), testgpu.NewStream(t, devices[1], nil)}
	memory := func(i int, pool bool) *cuda.Buffer[uint32] {
		if pool {
			return testgpu.AllocAsync[uint32](t, streams[i], n)
		}
		return testgpu.Alloc[uint32](t, devices[i], n)
	}
	value := uint32(0xabcdef00)
	for i := range 2 {
		for _, fromPool := range []bool{false, true} {
			for _, toPool := range []bool{false, true} {
				for _, s := range streams {
					from, to, out := memory(i, fromPool), memory(1-i, toPool), testgpu.AllocHost[uint32](t, devices[0], n)
					value++
					require.NoError(t, cuda.Fill(streams[i], from, value))
					require.NoError(t, streams[i].WaitStream(streams[1-i]))
					require.NoError(t, s.WaitStream(streams[i]))
					require.NoError(t, cuda.Copy(s, to, from))
					require.NoError(t, streams[1-i].WaitStream(s))
					require.NoError(t, cuda.Copy(streams[1-i], out, to))
					require.NoError(t, streams[1-i].Synchronize())
					testgpu.RequireAll(t, value, out.Slice())
				}
			}
		}
	}
}

func TestPeer(t *testing.T) {
	testgpu.Rule(t, "09 copies between devices keep every byte", 2, func(t *testing.T, b *testgpu.Backend) {
		copyAcross(t, b.Devices)
	})

	testgpu.Rule(t, "29 a reader on another device", 2, func(t *testing.T, b *testgpu.Backend) {
		home, reader := testgpu.NewStream(t, b.Devices[0], nil), testgpu.NewStream(t, b.Devices[1], nil)
		there, out := testgpu.Alloc[uint32](t, b.Devices[1], testgpu.FilledSize), testgpu.AllocHost[uint32](t, b.Devices[1], testgpu.FilledSize)
		buf := testgpu.Filled(t, home, 1)
		require.NoError(t, reader.WaitStream(home))
		release := testgpu.Hold(t, reader)
		require.NoError(t, cuda.Copy(reader, out, buf))
		again := testgpu.CloseAndAllocate(t, home, buf)
		release()
		require.NoError(t, reader.Synchronize())
		testgpu.RequireAll(t, 1, out.Slice())
		testgpu.RequireFilled(t, home, again, 2)

		buf = again // a copy between the devices
		require.NoError(t, reader.WaitStream(home))
		release = testgpu.Hold(t, reader)
		require.NoError(t, cuda.Copy(reader, there, buf))
		again = testgpu.CloseAndAllocate(t, home, buf)
		release()
		require.NoError(t, cuda.Fill(home, again, 3))
		testgpu.RequireFilled(t, reader, there, 2)
		testgpu.RequireFilled(t, home, again, 3)
	})

	// Access holds for the rest of the process: this comes last.
	testgpu.Rule(t, "09 access to another device's memory", 2, func(t *testing.T, b *testgpu.Backend) {
		one, two := b.Devices[0], b.Devices[1]
		for _, d := range []*cuda.Device{one, two} {
			can, err := d.CanAccessPeer(d)
			require.NoError(t, err)
			require.False(t, can, "to itself")
			require.ErrorIs(t, d.EnablePeerAccess(d), errors.ErrUnsupported)
		}
		_, err := one.CanAccessPeer(nil)
		require.ErrorIs(t, err, cuda.ErrInvalid)
		require.ErrorIs(t, one.EnablePeerAccess(nil), cuda.ErrInvalid)
		_, stranger := testgpu.SimulatedDevice(t, nil)
		require.ErrorIs(t, one.EnablePeerAccess(stranger), cuda.ErrDeviceMismatch)
		can, err := one.CanAccessPeer(two)
		require.NoError(t, err)
		if !can {
			require.ErrorIs(t, one.EnablePeerAccess(two), errors.ErrUnsupported)
			t.Skip("the devices cannot reach each other")
		}
		require.NoError(t, one.EnablePeerAccess(two))
		require.NoError(t, one.EnablePeerAccess(two))
		require.NoError(t, two.EnablePeerAccess(one))
		copyAcross(t, b.Devices)

		// Rectangles need the access.
		s := testgpu.NewStream(t, one, nil)
		near, far := testgpu.AllocAsync[uint32](t, s, 64), testgpu.AllocAsync[uint32](t, testgpu.NewStream(t, two, nil), 64)
		require.NoError(t, two.Synchronize())
		require.NoError(t, cuda.Fill(s, near, 5))
		require.NoError(t, cuda.Copy2D(s, far, 8, near, 8, 8, 8))
		testgpu.RequireFilled(t, s, far, 5)
	})
}

func TestNoPeerAccess(t *testing.T) {
	gpu := cudatest.New(cudatest.Config{Devices: 2, NoPeerAccess: true})
	drv, err := cuda.OpenDriver(gpu.API())
	require.NoError(t, err)
	b := &testgpu.Backend{Driver: drv}
	for i := range 2 {
		d, err := drv.OpenDevice(i)
		require.NoError(t, err)
		b.Devices = append(b.Devices, d)
	}
	can, err := b.Devices[0].CanAccessPeer(b.Devices[1])
	require.NoError(t, err)
	require.False(t, can)
	err = b.Devices[0].EnablePeerAccess(b.Devices[1])
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "device 0 cannot reach device 1")
	copyAcross(t, b.Devices)
}
