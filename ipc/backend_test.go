package ipc_test

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
)

// backend is what a rule is tried on: a driver and its devices, the simulated
// GPU in every run and NVIDIA's where there is one.
type backend struct {
	drv     *cuda.Driver
	devices []*cuda.Device
}

// dev is the first device.
func (b *backend) dev() *cuda.Device { return b.devices[0] }

// rule runs f on the simulated GPU and on a real one. The name begins with the
// number of the rule in docs/semantics.md. CUDA_TEST_REQUIRE_GPU=1 turns a
// missing driver from a skip into a failure. What f leaves open is a failure.
func rule(t *testing.T, name string, devices int, f func(t *testing.T, b *backend)) {
	t.Run("rule "+name, func(t *testing.T) {
		t.Run("simulated", func(t *testing.T) {
			gpu := cudatest.New(cudatest.Config{Devices: max(devices, 1)})
			t.Cleanup(func() { // misuse is the point of some rules, but leaks are of none
				var leaks []string
				noLeaks := func() bool { // some memory is freed in the background, some events by the collector
					runtime.GC()
					leaks = slices.DeleteFunc(gpu.Problems(), func(p string) bool { return !strings.HasPrefix(p, "leaked") })
					return len(leaks) == 0
				}
				for deadline := time.Now().Add(10 * time.Second); !noLeaks() && time.Now().Before(deadline); {
					time.Sleep(time.Millisecond)
				}
				require.Empty(t, leaks)
			})
			drv, err := cuda.OpenDriver(gpu.API())
			require.NoError(t, err)
			run(t, drv, f)
		})
		t.Run("real", func(t *testing.T) {
			drv := realDriver(t)
			if drv.DeviceCount() < devices {
				t.Skipf("needs %d devices, has %d", devices, drv.DeviceCount())
			}
			run(t, drv, f)
		})
	})
}

func run(t *testing.T, drv *cuda.Driver, f func(t *testing.T, b *backend)) {
	b := &backend{drv: drv}
	for i := range drv.DeviceCount() {
		d, err := drv.OpenDevice(i)
		require.NoError(t, err)
		b.devices = append(b.devices, d)
	}
	before, used := drv.Stats(), b.poolsUse(t)
	t.Cleanup(func() {
		for deadline := time.Now().Add(5 * time.Second); drv.Stats() != before && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond) // what a wait no longer needs is closed by a goroutine
		}
		require.Equal(t, before, drv.Stats(), "left open")
		require.Equal(t, used, b.poolsUse(t), "bytes of the pools left in use")
	})
	f(t, b)
}

// poolsUse returns how many bytes of the devices' memory pools are in use.
func (b *backend) poolsUse(t testing.TB) (all []uint64) {
	for _, d := range b.devices {
		pool, err := d.MemoryPool()
		require.NoError(t, err)
		s, err := pool.Stats()
		if !errors.Is(err, cuda.ErrDeviceLost) {
			require.NoError(t, err)
		}
		all = append(all, s.Used)
	}
	return all
}

func realDriver(t testing.TB) *cuda.Driver {
	t.Helper()
	drv, err := cuda.Open(nil)
	if err == nil && drv.DeviceCount() > 0 {
		return drv
	}
	if err == nil {
		_, err = drv.OpenDevice(0)
	}
	if os.Getenv("CUDA_TEST_REQUIRE_GPU") == "1" {
		t.Fatalf("CUDA_TEST_REQUIRE_GPU=1, but there is no GPU: %v", err)
	}
	t.Skip("no GPU here")
	return nil
}

func newStream(t testing.TB, d *cuda.Device, opts *cuda.StreamOptions) *cuda.Stream {
	t.Helper()
	s, err := d.NewStream(opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func newEvent(t testing.TB, opts *cuda.EventOptions) *cuda.Event {
	t.Helper()
	e := cuda.NewEvent(opts)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

func alloc[T cuda.Element](t testing.TB, d *cuda.Device, n int) *cuda.Buffer[T] {
	t.Helper()
	b, err := cuda.Alloc[T](d, n)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func allocHost[T cuda.Element](t testing.TB, d *cuda.Device, n int) *cuda.HostBuffer[T] {
	t.Helper()
	b, err := cuda.AllocHost[T](d, n, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// soon is how long something that must not happen is waited for.
const soon = 20 * time.Millisecond

// returns fails the test unless f returns within a few seconds.
func returns(t testing.TB, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("did not return")
	}
}

func query(t testing.TB, q interface{ Query() (bool, error) }) bool {
	t.Helper()
	done, err := q.Query()
	require.NoError(t, err)
	return done
}

func allocAsync[T cuda.Element](t testing.TB, s *cuda.Stream, n int) *cuda.Buffer[T] {
	t.Helper()
	b, err := cuda.AllocAsync[T](s, n)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// holds checks what is in b, in the order of home.
func holds(t testing.TB, home *cuda.Stream, b *cuda.Buffer[uint32], want uint32) {
	t.Helper()
	out := allocHost[uint32](t, b.Device(), b.Len())
	require.NoError(t, cuda.Copy(home, out, b))
	require.NoError(t, home.Synchronize())
	all(t, want, out.Slice())
}

// all checks that all elements of got are want.
func all[T cuda.Element](t testing.TB, want T, got []T) {
	t.Helper()
	for i, v := range got {
		if v != want {
			require.Equal(t, want, v, "element %d", i)
		}
	}
}

// native returns the handle of e, and does not make others share it as Handle does.
func native(t testing.TB, e *cuda.Event) (h driver.Event) {
	t.Helper()
	_, hex, _ := strings.Cut(e.String(), ", ")
	_, err := fmt.Sscanf(hex, "%v)", (*uintptr)(&h))
	require.NoError(t, err)
	return h
}

// changed is b with a driver of its own whose table is changed.
func changed(t testing.TB, b *backend, change func(*driver.API)) *backend {
	t.Helper()
	api := *b.drv.API()
	change(&api)
	return opened(t, &api)
}

// simulatedDevices is a backend of a simulated GPU, with a table that change leaves.
func simulatedDevices(t testing.TB, c cudatest.Config, change func(*driver.API)) (*cudatest.GPU, *backend) {
	t.Helper()
	gpu := cudatest.New(c)
	t.Cleanup(func() {
		if t.Failed() {
			return // it may have left anything
		}
		for _, p := range gpu.Problems() {
			t.Error(p)
		}
	})
	api := *gpu.API()
	if change != nil {
		change(&api)
	}
	return gpu, opened(t, &api)
}

func opened(t testing.TB, api *driver.API) *backend {
	t.Helper()
	drv, err := cuda.OpenDriver(api)
	require.NoError(t, err)
	b := &backend{drv: drv}
	for i := range drv.DeviceCount() {
		d, err := drv.OpenDevice(i)
		require.NoError(t, err)
		b.devices = append(b.devices, d)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			becomes(t, func() bool { return drv.Stats() == cuda.Stats{} })
			nobodyWaits(t, drv)
		}
	})
	return b
}

func instantiate(t testing.TB, g *cuda.Graph) *cuda.GraphExec {
	t.Helper()
	x, err := g.Instantiate()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	return x
}

// eventually collects garbage until f holds.
func eventually(t *testing.T, f func() bool) {
	t.Helper()
	for range 200 {
		runtime.GC()
		if f() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("did not come true")
}

// hold keeps s busy until release is called, on real and simulated GPUs alike: the stream
// waits for a word of pinned memory that the host sets. A test that fails releases too.
func hold(t testing.TB, s *cuda.Stream) (release func()) {
	t.Helper()
	word, err := cuda.AllocHost[uint32](s.Device(), 1, nil)
	require.NoError(t, err)
	atomic.StoreUint32(&word.Slice()[0], 0)
	require.NoError(t, s.WaitValue(word, 1))
	release = sync.OnceFunc(func() { atomic.StoreUint32(&word.Slice()[0], 1) })
	t.Cleanup(func() {
		release()
		require.NoError(t, s.Device().Synchronize())
		require.NoError(t, word.Close())
	})
	releasedAtEnd(t, release)
	return release
}
