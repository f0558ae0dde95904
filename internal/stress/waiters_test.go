package stress_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/testgpu"
)

// sample is what one way of waiting took.
type sample struct {
	took []time.Duration
	cpu  time.Duration
}

func (s *sample) at(quantile float64) time.Duration {
	slices.Sort(s.took)
	return s.took[int(quantile*float64(len(s.took)-1))]
}

// load is the part of one core that was used, in percent.
func (s *sample) load() float64 {
	var wall time.Duration
	for _, d := range s.took {
		wall += d
	}
	return 100 * float64(s.cpu) / float64(wall)
}

// TestManyWaiters parks goroutines, each with an event of its own, on up to 100
// streams that are held, releases the streams, and prints how long after that the
// goroutines ran.
func TestManyWaiters(t *testing.T) {
	skipShort(t)
	testgpu.Rule(t, "06 any number of goroutines wait", 1, func(t *testing.T, b *testgpu.Backend) {
		type count struct{ waiters, rounds int }
		counts := []count{{1, 3}, {100, 3}, {10_000, 1}}
		switch {
		case b.Real: // where the times mean something
			counts = []count{{1, 50}, {100, 20}, {10_000, 5}}
		case duration(0) > 0 && !underRaceDetector(): // which takes 60 KiB for each goroutine
			counts = append(counts, count{100_000, 1})
		}
		var table strings.Builder
		fmt.Fprintf(&table, "| waiters | p50 | p99 | the last | the device alone | Go alone | threads more | memory of each |\n|---|---|---|---|---|---|---|---|\n")
		for _, n := range counts {
			c := newCrowd(t, b.Device(), n.waiters)
			for range n.rounds {
				c.round(t)
			}
			ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
			fmt.Fprintf(&table, "| %d | %.3f ms | %.3f ms | %.3f ms | %.3f ms | %.3f ms | %d | %d B and a stack of %d B |\n", n.waiters,
				ms(c.at(0.5)), ms(c.at(0.99)), ms(c.last.at(0.5)), ms(c.device.at(0.5)), ms(c.alone.at(0.5)), c.threads, c.heap/n.waiters, c.stack/n.waiters)
			require.LessOrEqual(t, c.threads, 16)
		}
		t.Logf("%s: from the store that releases the streams until the goroutines ran; the last: median of the rounds\n%s", b.Driver.Library(), &table)
	})
}

func underRaceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// crowd is many goroutines that wait for an event each.
type crowd struct {
	gate                 *cuda.Stream
	streams              []*cuda.Stream
	events               []*cuda.Event
	sample                      // of all goroutines in all rounds
	last, device, alone  sample // by round: the last goroutine; the device without any; Go without a device
	threads, heap, stack int    // the most of all rounds
}

func newCrowd(t *testing.T, d *cuda.Device, n int) *crowd {
	c := &crowd{gate: testgpu.NewStream(t, d, nil)}
	for range min(n, 100) {
		c.streams = append(c.streams, testgpu.NewStream(t, d, nil))
	}
	for range n {
		c.events = append(c.events, testgpu.NewEvent(t, nil))
	}
	return c
}

// record records the events, and returns what releases the streams to them.
func (c *crowd) record(t *testing.T) (release func()) {
	release = testgpu.Hold(t, c.gate)
	for _, s := range c.streams {
		require.NoError(t, s.WaitStream(c.gate))
	}
	for i, e := range c.events {
		require.NoError(t, e.Record(c.streams[i%len(c.streams)]))
	}
	return release
}

func (c *crowd) round(t *testing.T) {
	release := c.record(t)
	at := time.Now()
	release()
	for _, e := range c.events[len(c.events)-len(c.streams):] {
		for !testgpu.Query(t, e) {
		}
	}
	c.device.took = append(c.device.took, time.Since(at))

	c.channels()
	release = c.record(t)
	awake, began := newMoments(len(c.events)), testgpu.Threads()
	var before, parked runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i, e := range c.events {
		awake.run(i, func() {
			if err := e.Synchronize(); err != nil {
				t.Error(err)
			}
		})
	}
	drv := c.gate.Device().Driver()
	testgpu.WaitUntil(t, func() bool { return drv.WaitStats().Waiting == len(c.events) })
	runtime.GC()
	runtime.ReadMemStats(&parked)
	time.Sleep(20*time.Millisecond + time.Duration(rand.IntN(200))*time.Microsecond)
	at = time.Now()
	release()
	took, last := awake.since(at)
	c.took, c.last.took = append(c.took, took...), append(c.last.took, last)
	c.threads = max(c.threads, testgpu.Threads()-began)
	c.heap = max(c.heap, int(parked.HeapAlloc)-int(before.HeapAlloc))
	c.stack = max(c.stack, int(parked.StackInuse)-int(before.StackInuse))
	testgpu.WaitUntil(t, func() bool { return drv.WaitStats().Waiting == 0 })
}

// TestManyWaitersOneByOne lets 10,000 goroutines wait for an event each, on 100
// streams that complete one every millisecond, and prints how long after its
// completion, by the device's clock, each was awake.
func TestManyWaitersOneByOne(t *testing.T) {
	skipShort(t)
	drv := testgpu.RealDriver(t)
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	const streams, each = 100, 100
	c := newCrowd(t, d, streams)
	prepared, err := testgpu.Kernel(t, testgpu.Kernels(t, d), "purecuda_spin").Prepare(uint64(time.Millisecond))
	require.NoError(t, err)
	one := cuda.LaunchConfig{Grid: cuda.Dim3{X: 1}, Block: cuda.Dim3{X: 1}}
	base := testgpu.NewEvent(t, testgpu.Timed())
	require.NoError(t, base.Record(c.gate))
	for !testgpu.Query(t, base) {
	}
	zero := time.Now()
	var events []*cuda.Event
	useProcessors()
	awake, began, before := newMoments(streams*each), testgpu.Threads(), drv.WaitStats()
	for range each {
		for _, s := range c.streams {
			require.NoError(t, prepared.Launch(s, one))
			e := testgpu.NewEvent(t, testgpu.Timed())
			require.NoError(t, e.Record(s))
			awake.run(len(events), func() {
				if err := e.Synchronize(); err != nil {
					t.Error(err)
				}
			})
			events = append(events, e)
		}
	}
	awake.since(zero)
	after := drv.WaitStats()
	var late sample
	for i, e := range events {
		at, err := base.ElapsedTime(e)
		require.NoError(t, err)
		late.took = append(late.took, awake.at[i].Sub(zero)-at)
	}
	t.Logf("%d waits, %d parked, %d threads more: awake after their completion p50 %v, p99 %v, the last %v; %d questions", len(events),
		after.Parked-before.Parked, testgpu.Threads()-began, late.at(0.5), late.at(0.99), late.at(1), after.Queries-before.Queries)
	require.Less(t, late.at(1), 20*time.Millisecond)
	require.LessOrEqual(t, testgpu.Threads()-began, 16)
}

// useProcessors lets Go make the threads that it has for its processors.
func useProcessors() {
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for began := time.Now(); time.Since(began) < 5*time.Millisecond; {
			}
		})
	}
	wg.Wait()
}

// channels is how long Go alone takes to wake as many goroutines, each with a
// channel of its own: a goroutine sends to 100 of them.
func (c *crowd) channels() {
	n := len(c.events)
	awake, channels := newMoments(n), make([]chan error, n)
	for i := range channels {
		channels[i] = make(chan error, 1)
		awake.run(i, func() { <-channels[i] })
	}
	runtime.GC()
	time.Sleep(20 * time.Millisecond)
	at := time.Now()
	for some := range slices.Chunk(channels, 100) {
		go func() {
			for _, c := range some {
				c <- nil
			}
		}()
	}
	_, last := awake.since(at)
	c.alone.took = append(c.alone.took, last)
}

// moments are when goroutines were awake. What they write to is in cache lines of
// their own, so that they are not in each other's way.
type moments struct {
	at []struct {
		time.Time
		_ [104]byte
	}
	groups [100]struct {
		sync.WaitGroup
		_ [112]byte
	}
}

func newMoments(n int) *moments {
	m := new(moments)
	m.at = slices.Grow(m.at, n)[:n]
	return m
}

// run calls f on a goroutine of its own.
func (m *moments) run(i int, f func()) {
	m.groups[i%len(m.groups)].Go(func() {
		f()
		m.at[i].Time = time.Now()
	})
}

// since waits for the goroutines, and returns how long each took, and the last.
func (m *moments) since(at time.Time) (took []time.Duration, last time.Duration) {
	for i := range m.groups {
		m.groups[i].Wait()
	}
	for _, woke := range m.at {
		took = append(took, woke.Sub(at))
		last = max(last, woke.Sub(at))
	}
	return took, last
}
