package cuda_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
)

// unpooled returns an event whose native event is destroyed with it.
func unpooled() *cuda.Event { return cuda.NewEvent(&cuda.EventOptions{Interprocess: true}) }

// eventCounts are of the calls that make and destroy events. Before a function of the
// table is called, its hook is.
type eventCounts struct {
	made, destroyed            atomic.Int32
	recording, asking, waiting atomic.Pointer[func()]
}

func pass(hook *atomic.Pointer[func()]) {
	if f := hook.Swap(nil); f != nil {
		(*f)()
	}
}

// countedDevice opens a simulated device whose events are counted.
func countedDevice(t *testing.T) (*cudatest.GPU, *cuda.Device, *eventCounts) {
	var c eventCounts
	gpu, d := simulatedDevice(t, func(api *driver.API) {
		bare := *api
		api.EventCreate = func(flags uint32) (driver.Event, driver.Result) {
			c.made.Add(1)
			return bare.EventCreate(flags)
		}
		api.EventDestroy = func(e driver.Event) driver.Result {
			c.destroyed.Add(1)
			return bare.EventDestroy(e)
		}
		api.EventRecord = func(e driver.Event, s driver.Stream) driver.Result {
			pass(&c.recording)
			return bare.EventRecord(e, s)
		}
		api.EventQuery = func(e driver.Event) driver.Result {
			pass(&c.asking)
			return bare.EventQuery(e)
		}
		api.StreamWaitEvent = func(s driver.Stream, e driver.Event, flags uint32) driver.Result {
			pass(&c.waiting)
			return bare.StreamWaitEvent(s, e, flags)
		}
		api.EventElapsedTime = func(start, end driver.Event) (float32, driver.Result) {
			pass(&c.asking)
			return bare.EventElapsedTime(start, end)
		}
	})
	return gpu, d, &c
}

func recorded(t *testing.T, s *cuda.Stream, opts *cuda.EventOptions) *cuda.Event {
	t.Helper()
	e := cuda.NewEvent(opts)
	require.NoError(t, e.Record(s))
	return e
}

// What is closed is used again, by events of the same kind.
func TestEventsAreUsedAgain(t *testing.T) {
	_, d, c := countedDevice(t)
	s := newStream(t, d, nil)
	for range 100 {
		e := recorded(t, s, nil)
		require.Equal(t, 1, d.Driver().Stats().Events)
		require.NoError(t, e.Close())
		require.Zero(t, d.Driver().Stats().Events)
	}
	require.EqualValues(t, 1, c.made.Load())
	for _, opts := range []*cuda.EventOptions{{Timing: true}, {Blocking: true}, {Timing: true, Blocking: true}} {
		before := c.made.Load()
		for range 3 {
			require.NoError(t, recorded(t, s, opts).Close())
		}
		require.Equal(t, before+1, c.made.Load())
	}
	before := c.made.Load()
	for range 3 {
		e := unpooled()
		require.NoError(t, e.Record(s))
		require.NoError(t, e.Close())
	}
	require.Equal(t, before+3, c.made.Load())
	require.EqualValues(t, 3, c.destroyed.Load())
}

// One that others know by its handle is not: it is destroyed when nobody uses it.
func TestEventsThatOthersKnowAreNotUsedAgain(t *testing.T) {
	_, d, c := countedDevice(t)
	s := newStream(t, d, nil)
	known := func() driver.Event {
		e := recorded(t, s, nil)
		native := e.Handle()
		require.NoError(t, e.Close())
		return native
	}()
	e := recorded(t, s, nil)
	defer e.Close()
	require.NotEqual(t, known, e.Handle())
	eventually(t, func() bool { return c.destroyed.Load() == 1 })
}

// A call that another goroutine's Close overtakes says so, whatever the next owner of
// the native event has done with it meanwhile.
func TestCloseOvertakes(t *testing.T) {
	for name, test := range map[string]struct {
		hook func(*eventCounts) *atomic.Pointer[func()]
		call func(e, end *cuda.Event, other *cuda.Stream) error
	}{
		"query": {
			func(c *eventCounts) *atomic.Pointer[func()] { return &c.asking },
			func(e, _ *cuda.Event, _ *cuda.Stream) error {
				done, err := e.Query()
				if err == nil {
					err = errors.New(map[bool]string{true: "done", false: "not done"}[done])
				}
				return err
			},
		},
		"synchronize": {
			func(c *eventCounts) *atomic.Pointer[func()] { return &c.asking },
			func(e, _ *cuda.Event, _ *cuda.Stream) error { return e.Synchronize() },
		},
		"wait": {
			func(c *eventCounts) *atomic.Pointer[func()] { return &c.waiting },
			func(e, _ *cuda.Event, other *cuda.Stream) error { return e.Wait(other) },
		},
		"elapsed time": {
			func(c *eventCounts) *atomic.Pointer[func()] { return &c.asking },
			func(e, end *cuda.Event, _ *cuda.Stream) error { _, err := e.ElapsedTime(end); return err },
		},
	} {
		t.Run(name, func(t *testing.T) {
			gpu, d, c := countedDevice(t)
			busy, idle := newStream(t, d, nil), newStream(t, d, nil)
			end := recorded(t, idle, &cuda.EventOptions{Timing: true})
			defer end.Close()
			release := gpu.Hold(busy)
			defer release()
			e := recorded(t, idle, &cuda.EventOptions{Timing: true})
			made := c.made.Load()
			var next *cuda.Event
			overtake := func() {
				require.NoError(t, e.Close())
				next = recorded(t, idle, &cuda.EventOptions{Timing: true}) // which is done
			}
			test.hook(c).Store(&overtake)
			require.ErrorIs(t, test.call(e, end, busy), cuda.ErrClosed)
			require.Equal(t, made, c.made.Load(), "the event was not used again")
			require.NoError(t, next.Close())
		})
	}
}

// A record holds the native event, so that nobody else has it before the record is over.
func TestRecordHoldsTheEvent(t *testing.T) {
	_, d, c := countedDevice(t)
	s := newStream(t, d, nil)
	e := recorded(t, s, nil)
	var other *cuda.Event
	overtake := func() {
		require.NoError(t, e.Close())
		other = recorded(t, s, nil)
	}
	c.recording.Store(&overtake)
	require.NoError(t, e.Record(s))
	require.EqualValues(t, 2, c.made.Load())
	require.NoError(t, other.Close())
	for range 2 {
		defer recorded(t, s, nil).Close()
	}
	require.EqualValues(t, 2, c.made.Load(), "both are there again")
	require.ErrorIs(t, e.Record(s), cuda.ErrClosed)
}

// An event whose first record fails has nothing of whoever had the native event before.
func TestFailedRecordOfUsedEvent(t *testing.T) {
	gpu, d, c := countedDevice(t)
	busy := newStream(t, d, nil)
	release := gpu.Hold(busy)
	require.NoError(t, recorded(t, busy, nil).Close()) // and is not done
	fails := newStream(t, d, nil)
	require.NoError(t, fails.Close())
	e := newEvent(t, nil)
	require.ErrorIs(t, e.Record(fails), cuda.ErrClosed)
	done, err := e.Query()
	require.NoError(t, err)
	require.True(t, done)
	release()
	require.NoError(t, e.Record(busy))
	require.EqualValues(t, 1, c.made.Load())
}

// In a capture there are only native events that nobody else has had.
func TestCapturesTakeUnusedEvents(t *testing.T) {
	_, d, c := countedDevice(t)
	s, other := newStream(t, d, nil), newStream(t, d, nil)
	require.NoError(t, recorded(t, s, nil).Close())
	e := recorded(t, s, nil)
	require.EqualValues(t, 1, c.made.Load())
	g := capture(t, s, func() {
		require.NoError(t, e.Record(s))
		require.NoError(t, e.Wait(other))
		require.NoError(t, s.WaitStream(other))
	})
	require.NoError(t, g.Close())
	require.GreaterOrEqual(t, c.made.Load(), int32(2))
	require.NoError(t, e.Record(s))
	require.NoError(t, e.Synchronize())
	require.NoError(t, e.Close())
}

// An event that is not closed is a leak, and one that is kept for the next is none.
func TestKeptEventsAreNoLeak(t *testing.T) {
	gpu := cudatest.New(cudatest.Config{})
	drv, err := cuda.OpenDriver(gpu.API())
	require.NoError(t, err)
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	s, err := d.NewStream(nil)
	require.NoError(t, err)
	e := recorded(t, s, nil)
	require.NoError(t, e.Close())
	e = recorded(t, s, nil)
	require.NoError(t, s.Close())
	require.Len(t, gpu.Problems(), 1)
	require.NoError(t, e.Close())
	gpu.Check(t)
}

// Events come and go on several goroutines, which see only their own.
func TestEventsComeAndGo(t *testing.T) {
	rule(t, "17 events of many goroutines", 1, func(t *testing.T, b *backend) {
		d := b.dev()
		var all sync.WaitGroup
		deadline := time.Now().Add(200 * time.Millisecond)
		for range 8 {
			s, other := newStream(t, d, nil), newStream(t, d, nil)
			all.Go(func() {
				for time.Now().Before(deadline) {
					e := cuda.NewEvent(nil)
					var pair sync.WaitGroup
					pair.Go(func() { _, _ = e.Query(); _ = e.Wait(other); _ = e.Synchronize() })
					for range 2 {
						if err := e.Record(s); err != nil {
							t.Error(err)
						}
					}
					if err := e.Synchronize(); err != nil {
						t.Error(err)
					}
					if done, err := e.Query(); !done || err != nil {
						t.Error(done, err)
					}
					if err := e.Close(); err != nil {
						t.Error(err)
					}
					pair.Wait()
					if _, err := e.Query(); !errors.Is(err, cuda.ErrClosed) {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
	})
}
