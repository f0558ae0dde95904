package rules_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// joining is what the cases below work with: buf's home is home.
type joining struct {
	t                   *testing.T
	home, reader, third *cuda.Stream
	buf                 *cuda.Buffer[uint32]
	out                 *cuda.Buffer[uint32]
	e                   *cuda.Event
}

func (j *joining) use() { j.ok(cuda.Copy(j.reader, j.out, j.buf)) }

func (j *joining) ok(err error) { j.t.Helper(); require.NoError(j.t, err) }

func (j *joining) record(s *cuda.Stream) { j.t.Helper(); j.ok(j.e.Record(s)) }

func (j *joining) wait(s *cuda.Stream) { j.t.Helper(); j.ok(j.e.Wait(s)) }

func (j *joining) join(s, to *cuda.Stream) { j.t.Helper(); j.ok(to.WaitStream(s)) }

// capture joins the reader back inside a capture: the graph is never launched.
func (j *joining) capture(back func()) {
	g, err := j.home.Capture(func() error {
		j.join(j.home, j.reader)
		back()
		return j.home.WaitStream(j.reader)
	})
	j.ok(err)
	j.ok(g.Close())
}

func TestLifetimeJoins(t *testing.T) {
	for _, c := range []struct {
		name  string
		opts  *cuda.EventOptions
		join  func(j *joining)
		waits int
	}{
		{"a reader not joined", nil, func(j *joining) { j.use() }, 1},
		{"joined by WaitStream", nil, func(j *joining) { j.use(); j.join(j.reader, j.home) }, 0},
		{"joined by an event", nil, func(j *joining) { j.use(); j.record(j.reader); j.wait(j.home) }, 0},
		{"joined twice", nil, func(j *joining) { j.use(); j.join(j.reader, j.home); j.use(); j.join(j.reader, j.home) }, 0},
		{"used again after WaitStream", nil, func(j *joining) { j.use(); j.join(j.reader, j.home); j.use() }, 1},
		{"used again after the event's wait", nil, func(j *joining) { j.use(); j.record(j.reader); j.wait(j.home); j.use() }, 1},
		{"used between record and wait", nil, func(j *joining) { j.use(); j.record(j.reader); j.use(); j.wait(j.home) }, 1},
		{"recorded before the use", nil, func(j *joining) { j.record(j.reader); j.use(); j.wait(j.home) }, 1},
		{"recorded again behind the use", nil, func(j *joining) { j.record(j.reader); j.use(); j.record(j.reader); j.wait(j.home) }, 0},
		{"recorded again elsewhere", nil, func(j *joining) { j.use(); j.record(j.reader); j.record(j.third); j.wait(j.home) }, 1},
		{"recorded elsewhere before", nil, func(j *joining) { j.use(); j.record(j.third); j.record(j.reader); j.wait(j.home) }, 0},
		{"waited for before it was recorded", nil, func(j *joining) { j.use(); j.wait(j.home); j.record(j.reader) }, 1},
		{"waited for by another stream", nil, func(j *joining) { j.use(); j.record(j.reader); j.wait(j.third) }, 1},
		{"by way of another stream", nil, func(j *joining) { j.use(); j.join(j.reader, j.third); j.join(j.third, j.home) }, 1},
		{"an event that others may record by its handle", nil, func(j *joining) {
			j.use()
			j.record(j.reader)
			require.Equal(j.t, driver.Success, j.third.Device().Driver().API().EventRecord(j.e.Handle(), j.third.Handle()))
			j.wait(j.home)
		}, 1},
		{"an event that another process may record", &cuda.EventOptions{Interprocess: true}, func(j *joining) {
			j.use()
			j.record(j.reader)
			j.wait(j.home)
		}, 1},
		{"an event that a graph may record", &cuda.EventOptions{External: true}, func(j *joining) {
			j.use()
			j.record(j.reader)
			j.wait(j.home)
		}, 1},
		{"WaitStream in a capture", nil, func(j *joining) { j.use(); j.capture(func() { j.join(j.reader, j.home) }) }, 1},
		{"an event in a capture", nil, func(j *joining) {
			j.use()
			j.capture(func() { j.record(j.reader); j.wait(j.home) })
		}, 1},
	} {
		testgpu.Rule(t, "29 "+c.name, 1, func(t *testing.T, b *testgpu.Backend) {
			b, calls := testgpu.Counted(t, b, nil)
			d := b.Device()
			j := &joining{t: t, home: testgpu.NewStream(t, d, nil), reader: testgpu.NewStream(t, d, nil), third: testgpu.NewStream(t, d, nil),
				out: testgpu.Alloc[uint32](t, d, 16), e: testgpu.NewEvent(t, c.opts)}
			j.buf = testgpu.AllocAsync[uint32](t, j.home, 16)
			j.join(j.home, j.reader)
			c.join(j)
			made := calls.During(func() { require.NoError(t, j.buf.Close()) })
			require.Zero(t, made["StreamWaitEvent"], "no stream waits for a free")
			require.Equal(t, c.waits, made["EventRecord"])
			require.Equal(t, c.waits, made["EventQuery"], "which is done")
			require.Equal(t, 1, made["MemFreeAsync"])
			require.Zero(t, made["StreamQuery"]+made["StreamSynchronize"]+made["EventSynchronize"])
		})
	}

	testgpu.Rule(t, "29 single-stream use costs nothing", 1, func(t *testing.T, b *testgpu.Backend) {
		b, calls := testgpu.Counted(t, b, nil)
		d := b.Device()
		home, host := testgpu.NewStream(t, d, nil), testgpu.AllocHost[uint32](t, d, 16)
		plain := testgpu.Alloc[uint32](t, d, 16)
		buf := testgpu.AllocAsync[uint32](t, home, 16)
		require.Equal(t, map[string]int{"MemsetD32Async": 1}, calls.During(func() { require.NoError(t, cuda.Fill(home, buf, 1)) }))
		require.Equal(t, map[string]int{"MemcpyAsync": 2}, calls.During(func() {
			require.NoError(t, cuda.Copy(home, plain, buf))
			require.NoError(t, cuda.Copy(home, host, buf))
		}))
		made := calls.During(func() { require.NoError(t, buf.Close()) })
		delete(made, "ThreadExchangeStreamCaptureMode") // for captures of others
		require.Equal(t, map[string]int{"MemFreeAsync": 1}, made)
		require.NoError(t, home.Synchronize())

		buf = testgpu.AllocAsync[uint32](t, home, 16) // and beside a capture
		g, err := testgpu.NewStream(t, d, nil).Capture(func() error { return cuda.Fill(home, buf, 1) })
		require.NoError(t, err)
		made = calls.During(func() { require.NoError(t, buf.Close()) })
		require.Zero(t, made["EventRecord"]+made["StreamWaitEvent"])
		require.NoError(t, g.Close())
		require.NoError(t, home.Synchronize())
	})

	testgpu.RuleWithRaces(t, "29 one mark per stream", 1, func(t *testing.T, b *testgpu.Backend) {
		b, calls := testgpu.Counted(t, b, nil)
		d := b.Device()
		home := testgpu.NewStream(t, d, nil)
		for n := 1; n <= 3; n++ {
			users := make([]*cuda.Stream, n)
			buf := testgpu.AllocAsync[uint32](t, home, 16)
			made := calls.During(func() {
				for i := range users {
					users[i] = testgpu.NewStream(t, d, nil)
					require.NoError(t, users[i].WaitStream(home))
				}
			})
			require.Equal(t, n, made["EventRecord"])
			made = calls.During(func() {
				for range 1000 {
					for _, s := range users {
						require.NoError(t, cuda.Fill(s, buf, 1))
					}
				}
			})
			require.Equal(t, 1000*n, made["MemsetD32Async"])
			require.Zero(t, made["EventRecord"])
			made = calls.During(func() { require.NoError(t, buf.Close()) })
			require.Equal(t, n, made["EventRecord"])
			require.Zero(t, made["StreamWaitEvent"])
		}
	})
}

// A wait refers to the record that reached the driver last. When records overlap,
// or a record and a wait, no join is claimed.
func TestLifetimeJoinsOverlap(t *testing.T) {
	testgpu.Rule(t, "29 a record that reaches the driver late", 1, func(t *testing.T, b *testgpu.Backend) {
		var late driver.Stream
		inside, goOn := make(chan struct{}), make(chan struct{})
		var once sync.Once
		bare := b.Driver.API().EventRecord
		b, calls := testgpu.Counted(t, b, func(api *driver.API) {
			api.EventRecord = func(e driver.Event, s driver.Stream) driver.Result {
				if s == late {
					once.Do(func() { close(inside) })
					<-goOn
				}
				return bare(e, s)
			}
		})
		j := overlap(t, b)
		late = j.third.Handle()
		done := make(chan error)
		go func() { done <- j.e.Record(j.third) }()
		<-inside
		j.use()
		j.record(j.reader)
		close(goOn)
		require.NoError(t, <-done)
		j.wait(j.home) // which is for what third was given
		late = 0
		made := calls.During(func() { require.NoError(t, j.buf.Close()) })
		require.Equal(t, 1, made["EventRecord"])
	})

	testgpu.Rule(t, "29 a record before the wait reaches the driver", 1, func(t *testing.T, b *testgpu.Backend) {
		var before func()
		bare := b.Driver.API().StreamWaitEvent
		b, calls := testgpu.Counted(t, b, func(api *driver.API) {
			api.StreamWaitEvent = func(s driver.Stream, e driver.Event, flags uint32) driver.Result {
				if before != nil {
					before()
				}
				return bare(s, e, flags)
			}
		})
		j := overlap(t, b)
		j.use()
		j.record(j.reader)
		before = func() { j.record(j.third) }
		j.wait(j.home)
		before = nil
		made := calls.During(func() { require.NoError(t, j.buf.Close()) })
		require.Equal(t, 1, made["EventRecord"])
	})

	testgpu.Rule(t, "29 a capture that begins during a Close", 1, func(t *testing.T, b *testgpu.Backend) {
		var before func()
		bare := b.Driver.API().EventRecord
		b, _ = testgpu.Counted(t, b, func(api *driver.API) {
			api.EventRecord = func(e driver.Event, s driver.Stream) driver.Result {
				if before != nil {
					before()
				}
				return bare(e, s)
			}
		})
		j := overlap(t, b)
		j.use()
		closed, done := make(chan struct{}), make(chan error, 1)
		before = func() {
			before = nil
			go func() {
				g, err := j.reader.Capture(func() error { <-closed; return nil })
				done <- errors.Join(err, g.Close())
			}()
			time.Sleep(testgpu.Soon) // the capture must not begin before the record
		}
		err := j.buf.Close()
		close(closed)
		require.NoError(t, <-done)
		require.NoError(t, err)
	})
}

func overlap(t *testing.T, b *testgpu.Backend) *joining {
	d := b.Device()
	j := &joining{t: t, home: testgpu.NewStream(t, d, nil), reader: testgpu.NewStream(t, d, nil), third: testgpu.NewStream(t, d, nil),
		out: testgpu.Alloc[uint32](t, d, 16), e: testgpu.NewEvent(t, nil)}
	j.buf = testgpu.AllocAsync[uint32](t, j.home, 16)
	j.join(j.home, j.reader)
	j.record(j.third)
	return j
}
