package rules_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// Closing memory makes no stream wait. So a program in which streams wait for each other by
// values comes to its end, whatever it closes in between.
func TestClosingMemoryBesideWaitValue(t *testing.T) {
	for name, use := range map[string]func(t *testing.T, home, user *cuda.Stream) (drop func()){
		"closed": func(t *testing.T, home, user *cuda.Stream) func() {
			b := used(t, home, user)
			return func() { require.NoError(t, b.Close()) }
		},
		"pinned": func(t *testing.T, home, user *cuda.Stream) func() {
			host, err := cuda.AllocHost[uint32](home.Device(), 4, nil)
			require.NoError(t, err)
			require.NoError(t, cuda.Copy(user, testgpu.Alloc[uint32](t, home.Device(), 4), host))
			return func() { require.NoError(t, host.Close()) }
		},
	} {
		testgpu.Rule(t, "29 a stream waits for a value that the home will write: "+name, 1, func(t *testing.T, b *testgpu.Backend) {
			b, calls := testgpu.Counted(t, b, nil)
			home, user := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
			word := hostWord(t, b.Device(), 1, 0)
			storedAtEnd(t, b.Device(), word, 1)
			drop := use(t, home, user)
			require.NoError(t, user.WaitValue(word, 1)) // later, and about something else
			waits := calls.Count("StreamWaitEvent")
			drop()
			require.Equal(t, waits, calls.Count("StreamWaitEvent"))
			require.NoError(t, home.WriteValue(word, 1))
			testgpu.Returns(t, func() { require.NoError(t, user.Synchronize()) })
			if name != "pinned" {
				testgpu.WaitUntil(t, func() bool { return calls.Count("MemFreeAsync") == 1 })
			}
		})
	}
}

// Nor if the garbage collector closes it between two calls.
func TestCollectingMemoryBesideWaitValue(t *testing.T) {
	_, d := testgpu.SimulatedDevice(t, nil)
	home, user := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
	word := hostWord(t, d, 1, 0)
	storedAtEnd(t, d, word, 1)
	used(t, home, user)
	require.NoError(t, user.WaitValue(word, 1))
	testgpu.CollectUntil(t, func() bool { return d.Driver().Stats().Forgotten == 1 })
	require.Equal(t, 1, d.Driver().Stats().Buffers, "it is used")
	require.NoError(t, home.WriteValue(word, 1))
	testgpu.Returns(t, func() { require.NoError(t, user.Synchronize()) })
	testgpu.WaitUntil(t, func() bool { return d.Driver().Stats().Buffers == 0 })
}

// used returns memory of home that user uses.
func used(t *testing.T, home, user *cuda.Stream) *cuda.Buffer[uint32] {
	b, err := cuda.AllocAsync[uint32](home, 4)
	require.NoError(t, err)
	require.NoError(t, user.WaitStream(home))
	require.NoError(t, cuda.Fill(user, b, 1))
	return b
}

// Memory that cannot be freed at its Close, as the driver makes no event by which one could
// tell when its uses are done, is freed later.
func TestClosingWithoutAnEvent(t *testing.T) {
	for name, alloc := range map[string]func(t *testing.T, home *cuda.Stream) (use func(s *cuda.Stream) error, close func() error){
		"of a pool": func(t *testing.T, home *cuda.Stream) (func(s *cuda.Stream) error, func() error) {
			b, err := cuda.AllocAsync[uint32](home, 1<<20)
			require.NoError(t, err)
			return func(s *cuda.Stream) error { return cuda.Fill(s, b, 1) }, b.Close
		},
		"pinned": func(t *testing.T, home *cuda.Stream) (func(s *cuda.Stream) error, func() error) {
			h, err := cuda.AllocHost[uint32](home.Device(), 1<<10, nil)
			require.NoError(t, err)
			to := testgpu.Alloc[uint32](t, home.Device(), 1<<10)
			return func(s *cuda.Stream) error { return cuda.Copy(s, to, h) }, h.Close
		},
	} {
		t.Run(name, func(t *testing.T) {
			var full atomic.Bool
			var freed, refused atomic.Int32
			gpu, b := testgpu.Simulated(t, cudatest.Config{}, func(api *driver.API) {
				bare := *api
				api.EventCreate = func(flags uint32) (driver.Event, driver.Result) {
					if full.Load() {
						refused.Add(1)
						return 0, driver.ErrorOutOfMemory
					}
					return bare.EventCreate(flags)
				}
				api.MemFreeAsync = func(p driver.DevicePtr, s driver.Stream) driver.Result { freed.Add(1); return bare.MemFreeAsync(p, s) }
				api.MemFreeHost = func(p unsafe.Pointer) driver.Result { freed.Add(1); return bare.MemFreeHost(p) }
			})
			home, user := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
			use, closeIt := alloc(t, home)
			require.NoError(t, user.WaitStream(home))
			releaseHome, release := gpu.Hold(home), gpu.Hold(user)
			for full.Store(true); ; { // until no event is left
				e := testgpu.NewEvent(t, nil)
				if err := e.Record(home); err != nil {
					require.ErrorIs(t, err, driver.ErrorOutOfMemory)
					break
				}
			}
			require.NoError(t, use(user))
			refused.Store(0)
			require.NoError(t, closeIt())
			require.NoError(t, closeIt())
			testgpu.WaitUntil(t, func() bool { return refused.Load() > 2 }) // it is tried again
			require.Zero(t, freed.Load())
			full.Store(false)
			releaseHome()
			require.NoError(t, home.Synchronize())
			require.Zero(t, freed.Load(), "it is used")
			release()
			testgpu.WaitUntil(t, func() bool { return freed.Load() == 1 })
		})
	}
}

// A stream of others may be gone when memory is closed that was used on it: it is not asked
// whether it is being captured, also not beside or in a capture.
func TestClosingMemoryOfAStreamThatIsGone(t *testing.T) {
	for name, inside := range map[string]bool{"in a capture": true, "beside a capture": false} {
		testgpu.Rule(t, "29 a stream of others is gone, and memory is closed "+name, 1, func(t *testing.T, b *testgpu.Backend) {
			var gone driver.Stream
			b, calls := testgpu.Counted(t, b, func(api *driver.API) {
				asked := api.StreamIsCapturing
				api.StreamIsCapturing = func(s driver.Stream) (driver.CaptureStatus, driver.Result) {
					if s == gone && s != 0 {
						t.Error("asked")
					}
					return asked(s)
				}
			})
			home, captured := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
			theirs, err := b.Device().NewStream(nil)
			require.NoError(t, err)
			wrapper, err := b.Device().ExternalStream(theirs.Handle())
			require.NoError(t, err)
			buf := used(t, home, wrapper)
			plain, err := cuda.Alloc[uint32](b.Device(), 4)
			require.NoError(t, err)
			require.NoError(t, cuda.Fill(wrapper, plain, 1))
			require.NoError(t, wrapper.Synchronize())
			handle := theirs.Handle()
			require.NoError(t, wrapper.Close())
			require.NoError(t, theirs.Close())
			gone = handle
			closeBoth := func() error {
				require.NoError(t, buf.Close())
				return plain.Close()
			}
			if inside {
				g, err := captured.Capture(closeBoth)
				require.NoError(t, err)
				require.NoError(t, g.Close())
			} else {
				begun, end := make(chan struct{}), make(chan struct{})
				ended := testgpu.Go(func() error {
					g, err := captured.Capture(func() error {
						close(begun)
						<-end
						return nil
					})
					return errors.Join(err, g.Close())
				})
				<-begun
				require.NoError(t, closeBoth())
				close(end)
				require.NoError(t, testgpu.Receive(t, ended))
			}
			testgpu.WaitUntil(t, func() bool { return calls.Count("MemFreeAsync") == 1 && calls.Count("MemFree") == 1 })
		})
	}
}
