package native_test

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// Memory that is being given back when the device is out of memory is waited for.
func TestOutOfMemoryWhileMemoryIsBeingFreed(t *testing.T) {
	b := newHeldDevice(t, tight)
	home, user, other := b.stream(t), b.stream(t), b.stream(t)
	release := testgpu.Hold(t, user)
	m := b.used(t, home, user, most)
	require.NoError(t, m.Close())
	arrived, open := b.holdNext("MemFreeAsync", false)
	release()
	testgpu.Receive(t, arrived) // the reaper frees it
	got := testgpu.Go(func() error {
		n, err := cuda.AllocAsync[byte](other, most)
		if err == nil {
			err = n.Close()
		}
		return err
	})
	time.Sleep(50 * time.Millisecond)
	open()
	require.NoError(t, testgpu.Receive(t, got))
}

// Memory that another goroutine closes meanwhile does not hide what was freed.
func TestOutOfMemoryBesideOtherFrees(t *testing.T) {
	b := newHeldDevice(t, tight)
	home, user, held, other := b.stream(t), b.stream(t), b.stream(t), b.stream(t)
	release := testgpu.Hold(t, user)
	forever := testgpu.Hold(t, held)
	m, little := b.used(t, home, user, most), b.used(t, home, held, 1)
	require.NoError(t, m.Close())
	got := testgpu.Go(func() error {
		n, err := cuda.AllocAsync[byte](other, most)
		if err == nil {
			err = n.Close()
		}
		return err
	})
	time.Sleep(50 * time.Millisecond) // it waits
	require.NoError(t, little.Close())
	release()
	require.NoError(t, testgpu.Receive(t, got))
	forever()
}

// Pinned memory is freed when the device is idle. No allocation of device memory that fails
// waits for that.
func TestOutOfMemoryBesidePinnedMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHeldDevice(t, tight)
		home, user := b.stream(t), b.stream(t)
		h, err := cuda.AllocHost[byte](b.Device, 64, nil)
		require.NoError(t, err)
		h2, err := cuda.AllocHost[byte](b.Device, 64, nil)
		require.NoError(t, err)
		m, err := cuda.AllocAsync[byte](home, most)
		require.NoError(t, err)
		require.NoError(t, user.WaitStream(home))
		b.gpu.Run(user, time.Second)
		require.NoError(t, cuda.Copy(user, h, h))
		require.NoError(t, cuda.Copy(user, h2, h2))
		require.NoError(t, h.Close())
		require.NoError(t, h2.Close())
		b.gpu.Run(user, time.Hour)
		time.Sleep(2 * time.Second)
		began := time.Now()
		_, err = cuda.AllocAsync[byte](home, most)
		require.ErrorIs(t, err, driver.ErrorOutOfMemory)
		require.LessOrEqual(t, time.Since(began), time.Second+2*time.Millisecond, "an allocation of device memory waits until the device is idle")
		require.NoError(t, m.Close())
		require.NoError(t, user.Synchronize())
	})
}

// A home whose queue is full holds up its own frees, and no allocation for longer than a second.
func TestOutOfMemoryBesideAFullQueue(t *testing.T) {
	b := newHeldDevice(t, tight)
	home, user, other := b.stream(t), b.stream(t), b.stream(t)
	release := testgpu.Hold(t, user)
	one, two := b.used(t, home, user, 1<<20), b.used(t, home, user, most)
	require.NoError(t, one.Close())
	require.NoError(t, two.Close())
	room := make(chan struct{})
	testgpu.ReleaseAtEnd(t, func() { close(room) })
	full := func(f string, after bool, _ []reflect.Value) {
		if f == "MemFreeAsync" && !after {
			<-room
		}
	}
	b.hold.Store(&full)
	release()
	time.Sleep(10 * time.Millisecond)
	got := testgpu.Go(func() error { _, err := cuda.AllocAsync[byte](other, most); return err })
	select {
	case err := <-got:
		require.ErrorIs(t, err, driver.ErrorOutOfMemory)
	case <-time.After(3 * time.Second):
		t.Fatal("an allocation waits for another stream's queue for more than a second")
	}
}

// Memory about which the poller's goroutine asks just now is waited for.
func TestOutOfMemoryWhileAFreeIsTried(t *testing.T) {
	b := newHeldDevice(t, tight)
	home, user, other := b.stream(t), b.stream(t), b.stream(t)
	release := testgpu.Hold(t, user)
	m := b.used(t, home, user, most)
	require.NoError(t, m.Close())
	// An allocation of the same home asks, and is held up there.
	arrived, open := b.holdNextOf("EventQuery", true, func([]reflect.Value) bool { return calledBy("AllocAsync") })
	asks := testgpu.Go(func() error {
		n, err := cuda.AllocAsync[byte](home, 1)
		if err == nil {
			err = n.Close()
		}
		return err
	})
	testgpu.Receive(t, arrived)
	got := testgpu.Go(func() error {
		n, err := cuda.AllocAsync[byte](other, most)
		if err == nil {
			err = n.Close()
		}
		return err
	})
	time.Sleep(50 * time.Millisecond)
	open()
	require.NoError(t, testgpu.Receive(t, asks))
	time.Sleep(50 * time.Millisecond)
	release()
	require.NoError(t, testgpu.Receive(t, got))
}

// Where there are no pools, memory that was closed is there again for the next allocation.
func TestOutOfMemoryWithoutPools(t *testing.T) {
	c := tight
	c.NoMemoryPools = true
	b := newHeldDevice(t, c)
	s := b.stream(t)
	for range 50 {
		m, err := cuda.AllocAsync[byte](s, most)
		require.NoError(t, err)
		require.NoError(t, cuda.Fill(s, m, 1))
		require.NoError(t, m.Close())
	}
}
