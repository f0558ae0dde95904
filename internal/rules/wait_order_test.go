package rules_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// queryCounter counts the queries of each event.
type queryCounter struct {
	mu    sync.Mutex
	times map[driver.Event]int
}

func (q *queryCounter) install(api *driver.API) {
	q.times = map[driver.Event]int{}
	bare := api.EventQuery
	api.EventQuery = func(e driver.Event) driver.Result {
		q.mu.Lock()
		q.times[e]++
		q.mu.Unlock()
		return bare(e)
	}
}

func (q *queryCounter) forget() {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.times)
}

func (q *queryCounter) about(e driver.Event) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.times[e]
}

// requireOnly requires e to be queried again and again, and no other event.
func (q *queryCounter) requireOnly(t testing.TB, e driver.Event) {
	t.Helper()
	q.forget()
	testgpu.WaitUntil(t, func() bool { return q.about(e) >= 3 }) // what was under way before is over
	q.forget()
	testgpu.WaitUntil(t, func() bool { return q.about(e) >= 20 })
	q.mu.Lock()
	defer q.mu.Unlock()
	require.Len(t, q.times, 1)
}

func TestOnlyTheOldestIsAsked(t *testing.T) {
	const n = 30
	var up, down, mixed []int
	for i := range n {
		up = append(up, i)
	}
	down = slices.Clone(up)
	slices.Reverse(down)
	mixed = rand.Perm(n)
	for name, order := range map[string][]int{"forwards": up, "backwards": down, "mixed": mixed} {
		testgpu.Rule(t, "06 of each stream the oldest record is asked, "+name, 1, func(t *testing.T, b *testgpu.Backend) {
			var q queryCounter
			b = testgpu.Modified(t, b, q.install)
			s := testgpu.NewStream(t, b.Device(), nil)
			var releases []func()
			var events []*cuda.Event
			for range n {
				if len(events)%10 == 0 {
					releases = append(releases, testgpu.Hold(t, s))
				}
				e := testgpu.NewEvent(t, nil)
				require.NoError(t, e.Record(s))
				events = append(events, e)
			}
			done := make([]<-chan error, n)
			cancels := make([]context.CancelFunc, n)
			for _, i := range order {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				cancels[i], done[i] = cancel, testgpu.Go(func() error { return events[i].SynchronizeContext(ctx) })
			}
			testgpu.Parked(t, b.Driver, n)
			q.requireOnly(t, testgpu.NativeEvent(t, events[0]))

			cancels[0]()
			require.ErrorIs(t, testgpu.Receive(t, done[0]), context.Canceled)
			q.requireOnly(t, testgpu.NativeEvent(t, events[1]))
			cancels[2]() // which was not asked
			require.ErrorIs(t, testgpu.Receive(t, done[2]), context.Canceled)
			q.requireOnly(t, testgpu.NativeEvent(t, events[1]))

			for i, release := range releases {
				if i > 0 {
					q.requireOnly(t, testgpu.NativeEvent(t, events[10*i]))
				}
				require.Equal(t, map[int]int{0: n - 2, 1: n - 10, 2: n - 20}[i], b.Driver.WaitStats().Waiting)
				release()
				for j := 10 * i; j < 10*i+10; j++ {
					if j != 0 && j != 2 {
						require.NoError(t, testgpu.Receive(t, done[j]))
					}
				}
			}
			testgpu.NoWaits(t, b.Driver)
		})
	}
}

// Records that were under way at the same time may stand in either order.
func TestConcurrentRecords(t *testing.T) {
	for name, between := range map[string]int{"two": 0, "a few": 20, "more than are counted": 300} {
		testgpu.Rule(t, "06 of records that overlap each is asked, "+name, 1, func(t *testing.T, b *testgpu.Backend) {
			entered, leave := make(chan struct{}), make(chan struct{})
			var held atomic.Bool
			b = testgpu.Modified(t, b, func(api *driver.API) {
				bare := api.EventRecord
				api.EventRecord = func(e driver.Event, s driver.Stream) driver.Result {
					r := bare(e, s)
					if held.CompareAndSwap(false, true) {
						close(entered)
						<-leave
					}
					return r
				}
			})
			s, early, late := testgpu.NewStream(t, b.Device(), nil), testgpu.NewEvent(t, nil), testgpu.NewEvent(t, nil)
			begin := testgpu.Hold(t, s)
			slow := testgpu.Go(func() error { return early.Record(s) })
			<-entered
			end := testgpu.Hold(t, s)
			require.NoError(t, late.Record(s))
			for range between {
				require.NoError(t, testgpu.NewEvent(t, nil).Record(s))
			}
			lateDone := []<-chan error{late.Done()}
			testgpu.Parked(t, b.Driver, 1)
			close(leave) // early is recorded last, but stands before late
			require.NoError(t, testgpu.Receive(t, slow))
			earlyDone := early.Done()
			lateDone = append(lateDone, testgpu.Go(late.Synchronize))
			testgpu.Parked(t, b.Driver, 3)
			begin()
			require.NoError(t, testgpu.Receive(t, earlyDone))
			testgpu.NotReady(t, lateDone...)
			end()
			for _, done := range lateDone {
				require.NoError(t, testgpu.Receive(t, done))
			}
		})
	}
}

// A record that was under way when the wait for it began is asked for by itself only
// until it is over.
func TestWaitDuringARecord(t *testing.T) {
	testgpu.Rule(t, "06 a wait that begins during the record", 1, func(t *testing.T, b *testgpu.Backend) {
		var q queryCounter
		entered, leave := make(chan struct{}), make(chan struct{})
		var slow atomic.Bool
		b = testgpu.Modified(t, b, func(api *driver.API) {
			q.install(api)
			bare := api.EventRecord
			api.EventRecord = func(e driver.Event, s driver.Stream) driver.Result {
				r := bare(e, s)
				if slow.CompareAndSwap(true, false) {
					close(entered)
					<-leave
				}
				return r
			}
		})
		s, oldest, e := testgpu.NewStream(t, b.Device(), nil), testgpu.NewEvent(t, nil), testgpu.NewEvent(t, nil)
		require.NoError(t, e.Record(s))
		require.NoError(t, e.Synchronize())
		release := testgpu.Hold(t, s)
		require.NoError(t, oldest.Record(s))
		slow.Store(true)
		recorded := testgpu.Go(func() error { return e.Record(s) })
		<-entered
		all := []<-chan error{oldest.Done(), e.Done()}
		testgpu.Parked(t, b.Driver, 2)
		testgpu.WaitUntil(t, func() bool { return q.about(testgpu.NativeEvent(t, e)) > 10 })
		close(leave)
		require.NoError(t, testgpu.Receive(t, recorded))
		q.requireOnly(t, testgpu.NativeEvent(t, oldest))
		release()
		for _, done := range all {
			require.NoError(t, testgpu.Receive(t, done))
		}
	})
}

func TestManyRecorders(t *testing.T) {
	gpu, b := testgpu.Simulated(t, cudatest.Config{}, nil)
	s := testgpu.NewStream(t, b.Device(), nil)
	const recorders, rounds = 16, 60
	var recording, waiting sync.WaitGroup
	for i := range recorders {
		recording.Go(func() {
			for range rounds {
				gpu.Run(s, time.Duration(i)*10*time.Microsecond)
				e, err := s.RecordEvent(nil)
				if err != nil {
					t.Error(err)
					return
				}
				waiting.Go(func() {
					if err := e.Synchronize(); err != nil {
						t.Error(err)
					}
					if done, err := e.Query(); !done || err != nil {
						t.Errorf("notified too early: %v, %v", done, err)
					}
					if err := e.Close(); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
	testgpu.Returns(t, recording.Wait)
	testgpu.Returns(t, waiting.Wait)
	testgpu.NoWaits(t, b.Driver)
}

// Waits for all that is done at the same moment end at the same moment: the poller does
// not sleep between one and the next.
func TestManyRecordsDoneAtOnce(t *testing.T) {
	gpu, b := testgpu.Simulated(t, cudatest.Config{}, nil)
	const n = 2000
	s := testgpu.NewStream(t, b.Device(), nil)
	release := gpu.Hold(s)
	var waits []<-chan error
	for range n {
		e := testgpu.NewEvent(t, nil)
		require.NoError(t, e.Record(s))
		waits = append(waits, e.Done())
	}
	last := gpu.Hold(s)
	behind, err := s.RecordEvent(nil)
	require.NoError(t, err)
	defer behind.Close()
	behindDone := behind.Done()
	testgpu.Parked(t, b.Driver, n+1)
	before := b.Driver.WaitStats()
	release()
	for _, done := range waits {
		require.NoError(t, testgpu.Receive(t, done))
	}
	after := b.Driver.WaitStats()
	require.Less(t, after.Wakeups-before.Wakeups, uint64(n/10))
	require.Less(t, after.Queries-before.Queries, uint64(n/4), "a later record that is done says so of the earlier ones")
	testgpu.NotReady(t, behindDone)
	last()
	require.NoError(t, testgpu.Receive(t, behindDone))
}

func TestStreamsDoNotDelayEachOther(t *testing.T) {
	testgpu.Rule(t, "06 a stream that is held delays no other's waits", 1, func(t *testing.T, b *testgpu.Backend) {
		held, s := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
		release := testgpu.Hold(t, held)
		var stuck []<-chan error
		for range 5 {
			e := testgpu.NewEvent(t, nil)
			require.NoError(t, e.Record(held))
			stuck = append(stuck, e.Done(), held.Done())
		}
		for range 20 {
			one := testgpu.Hold(t, s)
			e := testgpu.NewEvent(t, nil)
			require.NoError(t, e.Record(s))
			done := []<-chan error{e.Done(), s.Done(), testgpu.Go(e.Synchronize)}
			testgpu.Parked(t, b.Driver, len(stuck)+len(done))
			one()
			for _, d := range done {
				require.NoError(t, testgpu.Receive(t, d))
			}
		}
		testgpu.NotReady(t, stuck...)
		release()
		for _, d := range stuck {
			require.NoError(t, testgpu.Receive(t, d))
		}
	})
}
