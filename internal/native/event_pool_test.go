package native_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// eventCounts are of the calls that make and destroy events. Before a function of the
// table is called, its hook is.
type eventCounts struct {
	made, destroyed            atomic.Int32
	recording, asking, waiting testgpu.Hook
}

// countedDevice opens a simulated device whose events are counted.
func countedDevice(t *testing.T) (*cudatest.GPU, *cuda.Device, *eventCounts) {
	var c eventCounts
	gpu, d := testgpu.SimulatedDevice(t, func(api *driver.API) {
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
			c.recording.Run()
			return bare.EventRecord(e, s)
		}
		api.EventQuery = func(e driver.Event) driver.Result {
			c.asking.Run()
			return bare.EventQuery(e)
		}
		api.StreamWaitEvent = func(s driver.Stream, e driver.Event, flags uint32) driver.Result {
			c.waiting.Run()
			return bare.StreamWaitEvent(s, e, flags)
		}
		api.EventElapsedTime = func(start, end driver.Event) (float32, driver.Result) {
			c.asking.Run()
			return bare.EventElapsedTime(start, end)
		}
	})
	return gpu, d, &c
}

// What is closed is used again, by events of the same kind.
func TestEventsAreUsedAgain(t *testing.T) {
	_, d, c := countedDevice(t)
	s := testgpu.NewStream(t, d, nil)
	for range 100 {
		e := testgpu.NewRecordedEvent(t, s, nil)
		require.Equal(t, 1, d.Driver().Stats().Events)
		require.NoError(t, e.Close())
		require.Zero(t, d.Driver().Stats().Events)
	}
	require.EqualValues(t, 1, c.made.Load())
	for _, opts := range []*cuda.EventOptions{{Timing: true}, {Blocking: true}, {Timing: true, Blocking: true}} {
		before := c.made.Load()
		for range 3 {
			require.NoError(t, testgpu.NewRecordedEvent(t, s, opts).Close())
		}
		require.Equal(t, before+1, c.made.Load())
	}
	before := c.made.Load()
	for range 3 {
		e := testgpu.Unpooled()
		require.NoError(t, e.Record(s))
		require.NoError(t, e.Close())
	}
	require.Equal(t, before+3, c.made.Load())
	testgpu.CollectUntil(t, func() bool { return c.destroyed.Load() == 3 })
}

// One that others know by its handle is not: it is destroyed when nobody uses it.
func TestEventsThatOthersKnowAreNotUsedAgain(t *testing.T) {
	_, d, c := countedDevice(t)
	s := testgpu.NewStream(t, d, nil)
	known := func() driver.Event {
		e := testgpu.NewRecordedEvent(t, s, nil)
		native := e.Handle()
		require.NoError(t, e.Close())
		return native
	}()
	e := testgpu.NewRecordedEvent(t, s, nil)
	defer e.Close()
	require.NotEqual(t, known, e.Handle())
	testgpu.CollectUntil(t, func() bool { return c.destroyed.Load() == 1 })
}

// A call that another goroutine's Close overtakes says so, whatever the next owner of
// the native event has done with it meanwhile.
func TestCloseOvertakes(t *testing.T) {
	for name, test := range map[string]struct {
		hook func(*eventCounts) *testgpu.Hook
		call func(e, end *cuda.Event) error
	}{
		"query": {
			func(c *eventCounts) *testgpu.Hook { return &c.asking },
			func(e, _ *cuda.Event) error {
				done, err := e.Query()
				if err == nil {
					err = errors.New(map[bool]string{true: "done", false: "not done"}[done])
				}
				return err
			},
		},
		"synchronize": {
			func(c *eventCounts) *testgpu.Hook { return &c.asking },
			func(e, _ *cuda.Event) error { return e.Synchronize() },
		},
		"elapsed time": {
			func(c *eventCounts) *testgpu.Hook { return &c.asking },
			func(e, end *cuda.Event) error { _, err := e.ElapsedTime(end); return err },
		},
	} {
		t.Run(name, func(t *testing.T) {
			gpu, d, c := countedDevice(t)
			busy, idle := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
			end := testgpu.NewRecordedEvent(t, idle, &cuda.EventOptions{Timing: true})
			defer end.Close()
			release := gpu.Hold(busy)
			defer release()
			e := testgpu.NewRecordedEvent(t, idle, &cuda.EventOptions{Timing: true})
			made := c.made.Load()
			var next *cuda.Event
			overtake := func() {
				require.NoError(t, e.Close())
				next = testgpu.NewRecordedEvent(t, idle, &cuda.EventOptions{Timing: true}) // which is done
			}
			test.hook(c).Next(overtake)
			require.ErrorIs(t, test.call(e, end), cuda.ErrClosed)
			require.Equal(t, made, c.made.Load(), "the event was not used again")
			require.NoError(t, next.Close())
		})
	}
}

// A record and a wait hold the native event, so that nobody else has it before they are
// over.
func TestCallsHoldTheEvent(t *testing.T) {
	for name, test := range map[string]struct {
		hook func(*eventCounts) *testgpu.Hook
		call func(*cuda.Event, *cuda.Stream) error
	}{
		"record": {func(c *eventCounts) *testgpu.Hook { return &c.recording }, (*cuda.Event).Record},
		"wait":   {func(c *eventCounts) *testgpu.Hook { return &c.waiting }, (*cuda.Event).Wait},
	} {
		t.Run(name, func(t *testing.T) {
			_, d, c := countedDevice(t)
			s := testgpu.NewStream(t, d, nil)
			e := testgpu.NewRecordedEvent(t, s, nil)
			var other *cuda.Event
			overtake := func() {
				require.NoError(t, e.Close())
				other = testgpu.NewRecordedEvent(t, s, nil)
			}
			test.hook(c).Next(overtake)
			require.ErrorIs(t, test.call(e, s), cuda.ErrClosed)
			require.EqualValues(t, 2, c.made.Load())
			require.NoError(t, other.Close())
			for range 2 {
				defer testgpu.NewRecordedEvent(t, s, nil).Close()
			}
			require.EqualValues(t, 2, c.made.Load(), "both are there again")
			require.ErrorIs(t, test.call(e, s), cuda.ErrClosed)
		})
	}
}

// Before its first record is over an event has nothing of whoever had the native event
// before; nor if that fails.
func TestFirstRecordOfUsedEvent(t *testing.T) {
	for _, answer := range []driver.Result{driver.Success, driver.ErrorInvalidValue} {
		t.Run(answer.Error(), func(t *testing.T) {
			var hook testgpu.Hook
			var fails atomic.Bool
			var made atomic.Int32
			gpu, d := testgpu.SimulatedDevice(t, func(api *driver.API) {
				bare := *api
				api.EventCreate = func(flags uint32) (driver.Event, driver.Result) {
					made.Add(1)
					return bare.EventCreate(flags)
				}
				api.EventRecord = func(e driver.Event, s driver.Stream) driver.Result {
					hook.Run()
					if fails.Swap(false) {
						return answer
					}
					return bare.EventRecord(e, s)
				}
			})
			busy, idle := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
			release := gpu.Hold(busy)
			defer release()
			require.NoError(t, testgpu.NewRecordedEvent(t, busy, nil).Close()) // and is not done
			e := testgpu.NewEvent(t, nil)
			unrecorded := func() {
				done, err := e.Query()
				require.NoError(t, err)
				require.True(t, done)
				require.NoError(t, e.Synchronize())
				require.NoError(t, e.Wait(idle))
				done, err = idle.Query()
				require.NoError(t, err)
				require.True(t, done)
				require.Zero(t, e.Handle())
			}
			hook.Next(unrecorded)
			fails.Store(answer != driver.Success)
			if err := e.Record(idle); answer != driver.Success {
				require.ErrorIs(t, err, answer)
				unrecorded()
				require.NoError(t, e.Record(idle))
			} else {
				require.NoError(t, err)
			}
			require.NoError(t, e.Synchronize())
			if answer == driver.Success {
				require.EqualValues(t, 1, made.Load())
			} else {
				require.EqualValues(t, 2, made.Load(), "the one that failed is given to nobody")
			}
		})
	}
}

// In a capture there are only native events that nobody else has had, and afterwards
// nobody else has them either.
func TestCapturesTakeUnusedEvents(t *testing.T) {
	_, d, c := countedDevice(t)
	s, other := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
	require.NoError(t, testgpu.NewRecordedEvent(t, s, nil).Close())
	e := testgpu.NewRecordedEvent(t, s, nil)
	require.EqualValues(t, 1, c.made.Load())
	var first, captured *cuda.Event
	g := testgpu.Capture(t, s, func() {
		require.NoError(t, e.Record(s))
		require.EqualValues(t, 2, c.made.Load(), "instead of the one that it had")
		first = testgpu.NewRecordedEvent(t, s, nil)
		require.EqualValues(t, 3, c.made.Load(), "although there is one")
		captured = testgpu.NewRecordedEvent(t, s, nil)
		require.NoError(t, captured.Wait(other))
		require.NoError(t, s.WaitStream(other))
		require.NoError(t, captured.Close())
	})
	require.NoError(t, g.Close())
	made := c.made.Load()
	next := testgpu.NewRecordedEvent(t, s, nil)
	require.Equal(t, made, c.made.Load(), "it has the one that e had")
	require.NoError(t, testgpu.NewRecordedEvent(t, s, nil).Close())
	require.Equal(t, made+1, c.made.Load(), "the one from the capture is nobody's")
	require.NoError(t, next.Close())
	require.NoError(t, e.Record(s))
	require.NoError(t, e.Synchronize())
	require.NoError(t, e.Close())
	require.NoError(t, first.Close())
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
	e := testgpu.NewRecordedEvent(t, s, nil)
	require.NoError(t, e.Close())
	e = testgpu.NewRecordedEvent(t, s, nil)
	require.NoError(t, s.Close())
	require.Len(t, gpu.Problems(), 1)
	require.NoError(t, e.Close())
	gpu.Check(t)
}
