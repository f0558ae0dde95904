package ipc

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// duo are two simulated processes with a session, in which the simulation's processes
// are what die: a produces, b consumes.
type duo struct {
	gpu  *cudatest.GPU
	a, b *end
	dead map[*end]bool
}

// newDuo makes them, with tables that the changes leave. At the test's end nothing may
// be left.
func newDuo(t *testing.T, changes ...func(*driver.API)) *duo {
	t.Helper()
	leavesNothing(t)
	d := &duo{gpu: cudatest.New(cudatest.Config{}), dead: map[*end]bool{}}
	open := func(i int) *end {
		e := &end{sim: d.gpu.NewProcess()}
		api := *e.sim.API()
		if i < len(changes) && changes[i] != nil {
			changes[i](&api)
		}
		var err error
		e.drv, err = cuda.OpenDriver(&api)
		require.NoError(t, err)
		e.dev, err = e.drv.OpenDevice(0)
		require.NoError(t, err)
		e.stream, err = e.dev.NewStream(nil)
		require.NoError(t, err)
		return e
	}
	d.a, d.b = open(0), open(1)
	t.Cleanup(func() { d.end(t) })
	d.a.Session, d.b.Session = connected(t, &Options{processes: seen(d.a, d.b)}, &Options{processes: seen(d.b, d.a)})
	return d
}

// seen are the processes as one end sees them: the other one has whatever number the
// socket says.
func seen(self, other *end) *driver.Processes {
	return &driver.Processes{
		Find: func(pid int) (driver.Process, error) {
			if pid == 0 {
				return self.drv.FindProcess(0)
			}
			return other.drv.FindProcess(0)
		},
		Watch: self.drv.API().Processes.Watch,
	}
}

func (d *duo) end(t *testing.T) {
	if t.Failed() { // it may have left anything
		d.a.sim.Kill()
		d.b.sim.Kill()
	}
	for _, e := range []*end{d.a, d.b} {
		_ = finishes(t, e.Session.Close)
		_ = finishes(t, e.stream.Close)
	}
	if !t.Failed() {
		for deadline := time.Now().Add(5 * time.Second); len(d.problems()) > 0 && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		require.Empty(t, d.problems())
		for _, e := range []*end{d.a, d.b} {
			if !d.dead[e] {
				testgpu.WaitUntil(t, func() bool { return e.drv.Stats() == cuda.Stats{} })
			}
		}
	}
	d.a.sim.Kill() // ends what is left of the dead one's code
	d.b.sim.Kill()
}

// problems are the GPU's. Who reads batches of an end that dies may read them while they are
// written: Confirm says so.
func (d *duo) problems() []string {
	return slices.DeleteFunc(d.gpu.Problems(), func(p string) bool { return len(d.dead) > 0 && strings.HasPrefix(p, "race: ") })
}

// kill ends a process all at once.
func (d *duo) kill(e *end) {
	d.dead[e] = true
	e.sim.Kill()
}

// ring makes a ring from a to b, closed at the test's end.
func (d *duo) ring(t *testing.T, slots, length int) (*Producer[uint32], *Consumer[uint32]) {
	t.Helper()
	return newTestRing(t, d.a, d.b, "r", slots, length)
}

func newTestRing(t *testing.T, a, b *end, name string, slots, length int) (p *Producer[uint32], c *Consumer[uint32]) {
	t.Helper()
	made := testgpu.Go(func() (err error) {
		p, err = NewProducer[uint32](context.Background(), a.Session, a.dev, name, slots, length)
		return err
	})
	c, err := NewConsumer[uint32](within(t, 10*time.Second), b.Session, b.drv, name)
	require.NoError(t, err)
	require.NoError(t, testgpu.Receive(t, made))
	t.Cleanup(func() {
		if t.Failed() { // it may have left what no Close returns from
			a.sim.Kill()
			b.sim.Kill()
		}
		finishes(t, func() error { return errors.Join(p.Close(), c.Close()) })
	})
	return p, c
}

// closes closes c at the test's end, unless that has failed: then it may block.
func closes(t testing.TB, c io.Closer) {
	t.Cleanup(func() {
		if !t.Failed() {
			_ = c.Close()
		}
	})
}

// newStream makes a stream that is closed at the test's end.
func (e *end) newStream(t testing.TB) *cuda.Stream {
	t.Helper()
	s, err := e.dev.NewStream(nil)
	require.NoError(t, err)
	closes(t, s)
	return s
}

func (e *end) streams(t testing.TB, n int) (all []*cuda.Stream) {
	for range n {
		all = append(all, e.newStream(t))
	}
	return all
}

// hold keeps a stream busy until release is called, at the latest at the test's end.
func (d *duo) hold(t testing.TB, s *cuda.Stream) (release func()) {
	release = d.gpu.Hold(s)
	t.Cleanup(release)
	return release
}

// noCounters makes a table of a driver that is too old for counters.
func noCounters(api *driver.API) {
	api.StreamWaitValue32, api.StreamWriteValue32 = nil, nil
}

// refusesCounters makes a table of a device that cannot do it.
func refusesCounters(api *driver.API) {
	api.StreamWaitValue32 = func(driver.Stream, driver.DevicePtr, uint32, uint32) driver.Result {
		return driver.ErrorNotSupported
	}
	api.StreamWriteValue32 = func(driver.Stream, driver.DevicePtr, uint32, uint32) driver.Result {
		return driver.ErrorNotSupported
	}
}

// source has what is sent: each batch is a part of it that begins somewhere else.
type source struct {
	words  []uint32
	length int
	device *cuda.Buffer[uint32]
}

const shifts = 4096

func newSource(t testing.TB, e *end, length int) *source {
	t.Helper()
	s := &source{words: make([]uint32, length+shifts), length: length}
	x := uint32(1)
	for i := range s.words {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		s.words[i] = x
	}
	var err error
	s.device, err = cuda.Alloc[uint32](e.dev, len(s.words))
	require.NoError(t, err)
	closes(t, s.device)
	require.NoError(t, cuda.CopyFromSlice(t.Context(), e.stream, s.device, s.words))
	require.NoError(t, e.stream.Synchronize())
	return s
}

func shift(n uint64) int { return int(n * 1009 % shifts) }

// fill enqueues the copy of a batch into its slot.
func (x *source) fill(s *cuda.Stream, slot Slot[uint32]) error {
	at := shift(slot.Number)
	part, err := x.device.Range(at, at+x.length)
	if err != nil {
		return err
	}
	return cuda.Copy(s, slot.Buffer, part)
}

func (x *source) is(got []uint32, n uint64) bool {
	at := shift(n)
	return slices.Equal(got, x.words[at:at+x.length])
}

// send sends the next batch, all of one value.
func send(t testing.TB, p *Producer[uint32], s *cuda.Stream, value uint32) {
	t.Helper()
	slot, err := p.Next(within(t, 10*time.Second), s)
	require.NoError(t, err)
	require.NoError(t, cuda.Fill(s, slot.Buffer, value))
	require.NoError(t, slot.Send(s))
}

// take takes the next batch, has it copied and releases it.
func take(t testing.TB, c *Consumer[uint32], s *cuda.Stream) took {
	t.Helper()
	batch, err := c.Next(within(t, 10*time.Second), s)
	require.NoError(t, err)
	x := took{Batch: batch}
	x.host, err = cuda.AllocHost[uint32](c.Device(), batch.Buffer.Len(), nil)
	require.NoError(t, err)
	closes(t, x.host)
	require.NoError(t, cuda.Copy(s, x.host, batch.Buffer))
	x.there, err = s.RecordEvent(nil)
	require.NoError(t, err)
	closes(t, x.there)
	require.NoError(t, batch.Release(s))
	return x
}

// took is a batch that is on its way to the host.
type took struct {
	Batch[uint32]
	host  *cuda.HostBuffer[uint32]
	there *cuda.Event
}

// has wants the batch to be good, and all of one value.
func (x took) has(t testing.TB, value uint32) {
	t.Helper()
	require.NoError(t, x.Confirm(within(t, 10*time.Second)))
	require.NoError(t, x.there.SynchronizeContext(within(t, 10*time.Second)))
	for i, v := range x.host.Slice() {
		require.Equal(t, value, v, "batch %d, element %d", x.Number, i)
	}
}

// finishes wants f to return within a few seconds, and says what it returned.
func finishes(t testing.TB, f func() error) error {
	t.Helper()
	return testgpu.Receive(t, testgpu.Go(f))
}

// runs wants a stream, and its device, to come to their ends.
func (e *end) runs(t testing.TB, streams ...*cuda.Stream) {
	t.Helper()
	for _, s := range append(streams, e.stream) {
		require.NoError(t, finishes(t, s.Synchronize))
	}
	require.NoError(t, finishes(t, e.dev.Synchronize))
}
