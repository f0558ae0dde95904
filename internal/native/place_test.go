package native

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
)

// simulated returns the device of a simulated GPU.
func simulated(t *testing.T) *Device {
	_, d := simulatedGPU(t)
	return d
}

func simulatedGPU(t *testing.T) (*cudatest.GPU, *Device) {
	t.Helper()
	gpu := cudatest.New(cudatest.Config{})
	api := *gpu.API()
	require.NoError(t, api.Complete())
	require.Equal(t, driver.Success, api.Init(0))
	d := NewDriver(&api, func(what string, err error) { t.Error(what, err) }).NewDevice(0, 0, nil)
	_, err := d.Open()
	require.NoError(t, err)
	return gpu, d
}

func newStream(t *testing.T, d *Device) *Stream {
	t.Helper()
	s, err := d.NewStream(0, false)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// A stream has joined what is before the record that it has waited for, and nothing else.
func TestJoins(t *testing.T) {
	var j joins
	for _, p := range []place{makePlace(0, 1), makePlace(3, 7), makePlace(3, 0)} {
		require.False(t, j.after(p))
	}
	j.note(makePlace(3, 7))
	j.note(makePlace(0, 9)) // no place
	j.note(makePlace(5, 2)) // in another slot
	for p, joined := range map[place]bool{
		makePlace(3, 6): true, makePlace(3, 7): false, makePlace(3, 8): false,
		makePlace(5, 1): true, makePlace(5, 2): false, makePlace(0, 1): false, makePlace(4, 1): false,
		makePlace(3+uint64(len(j)), 1): false, // of the same slot
	} {
		require.Equal(t, joined, j.after(p), "%d of %d", p.number(), p.serial())
	}
	j.note(makePlace(3+uint64(len(j)), 2))
	require.False(t, j.after(makePlace(3, 6)), "another has its slot")
	require.EqualValues(t, 1<<20, makePlace(maxSerial, 1<<20).number())
	require.EqualValues(t, maxSerial, makePlace(maxSerial, 1<<20).serial())
}

// The place of a use never goes back, however late somebody notes one.
func TestPlacesGrow(t *testing.T) {
	for _, c := range []struct{ has, notes, want place }{
		{0, makePlace(2, 5), makePlace(2, 5)},
		{makePlace(2, 5), makePlace(2, 6), makePlace(2, 6)},
		{makePlace(2, 5), makePlace(2, 4), makePlace(2, 5)},
		{makePlace(2, 5), makePlace(1, 9), makePlace(1, 9)}, // the stream has a new serial
		{makePlace(2, 5), makePlace(3, 1), makePlace(3, 1)},
	} {
		var u user
		u.place.Store(uint64(c.has))
		u.advance(c.notes)
		require.Equal(t, c.want, place(u.place.Load()))
	}

	d := simulated(t)
	home, other := newStream(t, d), newStream(t, d)
	m := &Memory{Dev: d, kind: poolMemory, home: home}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 2000 {
				other.gate.EnterRecord()
				p := other.place()
				runtime.Gosched()
				m.used(other)
				if got := place(m.user(other).place.Load()); got < p {
					t.Errorf("%d after %d", got.number(), p.number())
				}
				other.leave()
			}
		})
	}
	all.Wait()
	require.Len(t, m.list(), 1)
	m.list()[0].release()
}

// Work on a stream that was made elsewhere, and what others may have recorded, has no place.
func TestNoPlace(t *testing.T) {
	d := simulated(t)
	s, home := newStream(t, d), newStream(t, d)
	var e Event
	require.NoError(t, e.Record(s))
	s.Handle()
	require.NoError(t, e.Record(s))
	require.NoError(t, e.Wait(home))
	require.Zero(t, place(e.mark.Load().first.Load()).serial())
	for i := range home.joined {
		require.Zero(t, home.joined[i].Load(), "others may record in between")
	}
	e.Close()
}

// Who records beside others does not say that the record is the last one so far.
func TestOverlappingRecords(t *testing.T) {
	d := simulated(t)
	s := newStream(t, d)
	var e Event
	first := s.gate.Number()
	for i, overlaps := range []bool{false, true, false} {
		if overlaps {
			s.gate.Enter()
		}
		require.NoError(t, e.Record(s))
		want := first + uint64(i) + 1
		m := e.mark.Load()
		require.Equal(t, want, place(m.first.Load()).number())
		if overlaps {
			want = numbers
			require.Equal(t, want, m.last.Load())
			queue, _, _ := m.Place()
			require.Nil(t, queue, "a call is under way that may record it")
			s.leave()
			continue
		}
		require.Equal(t, want, m.last.Load())
		queue, _, _ := m.Place()
		require.Equal(t, s, queue)
	}
	e.Close()
}

// Numbers that are used up begin again with a new serial, so that no place means two things.
func TestRenumber(t *testing.T) {
	d := simulated(t)
	s := newStream(t, d)
	var e Event
	s.gate.Begin(1<<39 - 2)
	require.NoError(t, e.Record(s))
	was := s.place()
	require.NoError(t, e.Record(s))
	require.NoError(t, e.Record(s))
	require.NotEqual(t, was.serial(), s.place().serial())
	require.Less(t, s.place().number(), uint64(4))
	e.Close()
}

// The numbers of records are used up, while the host waits for some. No wait ends before its
// record is done, nor waits for a later one.
func TestWaitsAcrossRenumber(t *testing.T) {
	gpu, d := simulatedGPU(t)
	s := newStream(t, d)
	s.gate.Begin(1<<39 - 3)
	wait := func(e *Event) <-chan error {
		p, err := e.BeginWait()
		require.NoError(t, err)
		over := make(chan error, 1)
		go func() {
			err := p.Wait(context.Background())
			p.End()
			over <- err
		}()
		return over
	}
	var before, across, after Event
	releaseFirst := gpu.Hold(cudatest.Handle(s.Native))
	require.NoError(t, before.Record(s))
	first := []<-chan error{wait(&before)}
	for range 6 {
		require.NoError(t, across.Record(s))
	}
	first = append(first, wait(&across))
	releaseAll := gpu.Hold(cudatest.Handle(s.Native))
	require.NoError(t, after.Record(s))
	last := wait(&after)
	time.Sleep(10 * time.Millisecond) // until all are parked
	releaseFirst()
	ends := func(over <-chan error) {
		t.Helper()
		select {
		case err := <-over:
			require.NoError(t, err)
		case <-time.After(5 * time.Second):
			t.Fatal("a wait for a record that is done goes on")
		}
	}
	for _, over := range first {
		ends(over)
	}
	select {
	case err := <-last:
		t.Error("the wait for a record that is not done has ended:", err)
	case <-time.After(20 * time.Millisecond):
	}
	releaseAll()
	ends(last)
	for _, e := range []*Event{&before, &across, &after} {
		e.Close()
	}
}

// What has begun a capture or joined it is diverted until it ends, and only that.
func TestCapturesDivert(t *testing.T) {
	d := simulated(t)
	s, o, third := newStream(t, d), newStream(t, d), newStream(t, d)
	diverted := func() (all []bool) {
		for _, s := range []*Stream{s, o, third, d.Default} {
			all = append(all, s.gate.Diverted())
		}
		return all
	}
	d.Default.open()
	require.Equal(t, []bool{false, false, false, false}, diverted())
	k, err := s.BeginCapture()
	require.NoError(t, err)
	require.Equal(t, []bool{true, false, false, false}, diverted())
	require.NoError(t, o.WaitStream(s))
	require.Equal(t, []bool{true, true, false, false}, diverted())
	require.NoError(t, s.WaitStream(o))
	g, err := k.End()
	require.NoError(t, err)
	require.NoError(t, g.Close())
	require.Equal(t, []bool{false, false, false, false}, diverted())
	blocking, err := d.NewStream(0, true)
	require.NoError(t, err)
	k, err = blocking.BeginCapture()
	require.NoError(t, err)
	require.Equal(t, []bool{false, false, false, true}, diverted())
	g, err = k.End()
	require.NoError(t, err)
	require.NoError(t, g.Close())
	require.Equal(t, []bool{false, false, false, false}, diverted())
	require.NoError(t, blocking.Close())
}
