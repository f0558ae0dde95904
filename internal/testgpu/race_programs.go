package testgpu

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
)

// Raced is what a program works on that may lack a wait.
type Raced struct {
	T      testing.TB
	Device *cuda.Device
	S1, S2 *cuda.Stream
	X, Y   *cuda.Buffer[float32]
	Affine *cuda.Kernel
}

// RacedLen is the length of the buffers.
const RacedLen = 4096

// NewRaced makes what a program works on.
func NewRaced(t testing.TB, d *cuda.Device) *Raced {
	r := &Raced{T: t, Device: d, S1: NewStream(t, d, nil), S2: NewStream(t, d, nil)}
	r.X, r.Y = Alloc[float32](t, d, RacedLen), Alloc[float32](t, d, RacedLen)
	r.Affine = Kernel(t, Kernels(t, d), "purecuda_affine")
	return r
}

// Fill fills b on s.
func (r *Raced) Fill(s *cuda.Stream, b *cuda.Buffer[float32]) {
	require.NoError(r.T, cuda.Fill(s, b, 1))
}

// Read copies b to host memory of its own.
func (r *Raced) Read(s *cuda.Stream, b *cuda.Buffer[float32]) {
	require.NoError(r.T, cuda.Copy(s, AllocHost[float32](r.T, r.Device, b.Len()), b))
}

// Update changes b in place, by a kernel.
func (r *Raced) Update(s *cuda.Stream, b *cuda.Buffer[float32]) {
	require.NoError(r.T, r.Affine.Launch(s, cuda.Grid1D(b.Len(), 256), struct {
		dst, src      *cuda.Buffer[float32]
		scale, offset float32
		n             uint64
	}{b, b, -1, 0, uint64(b.Len())}))
}

// Record makes an event and records it on s.
func (r *Raced) Record(s *cuda.Stream) *cuda.Event {
	e := NewEvent(r.T, nil)
	require.NoError(r.T, e.Record(s))
	return e
}

// Wait makes s wait for other.
func (r *Raced) Wait(s, other *cuda.Stream) { require.NoError(r.T, s.WaitStream(other)) }

// Synchronize waits on the host.
func (r *Raced) Synchronize(s interface{ Synchronize() error }) {
	require.NoError(r.T, s.Synchronize())
}

// Blocking makes a stream that synchronises with the default stream.
func (r *Raced) Blocking() *cuda.Stream {
	return NewStream(r.T, r.Device, &cuda.StreamOptions{SyncWithDefault: true})
}

// RaceProgram is right, and wrong without what it does if right.
type RaceProgram func(r *Raced, right bool)

// RacePrograms are programs of all kinds.
func RacePrograms() map[string]RaceProgram {
	all := maps.Clone(streamPrograms)
	maps.Copy(all, hostPrograms)
	maps.Copy(all, graphPrograms)
	return all
}

// streamPrograms are of streams, events and waits on the host.
var streamPrograms = map[string]RaceProgram{
	"write, read": func(r *Raced, right bool) {
		r.Fill(r.S1, r.X)
		if right {
			r.Wait(r.S2, r.S1)
		}
		r.Read(r.S2, r.X)
	},
	"read, write": func(r *Raced, right bool) {
		r.Read(r.S1, r.X)
		if right {
			r.Wait(r.S2, r.S1)
		}
		r.Fill(r.S2, r.X)
	},
	"write, write": func(r *Raced, right bool) {
		r.Fill(r.S1, r.X)
		if right {
			r.Wait(r.S2, r.S1)
		}
		r.Fill(r.S2, r.X)
	},
	"kernel, read": func(r *Raced, right bool) {
		r.Update(r.S1, r.X)
		if right {
			r.Wait(r.S2, r.S1)
		}
		r.Read(r.S2, r.X)
	},
	"two kernels": func(r *Raced, right bool) {
		r.Update(r.S1, r.X)
		if right {
			r.Wait(r.S2, r.S1)
		}
		r.Update(r.S2, r.X)
	},
	"an event, waited for when it is long done": func(r *Raced, right bool) {
		r.Fill(r.S1, r.X)
		e := r.Record(r.S1)
		time.Sleep(time.Millisecond)
		if right {
			require.NoError(r.T, e.Wait(r.S2))
		}
		r.Read(r.S2, r.X)
	},
	"an event recorded too early": func(r *Raced, right bool) {
		e := r.Record(r.S1)
		r.Fill(r.S1, r.X)
		if right {
			require.NoError(r.T, e.Record(r.S1))
		}
		require.NoError(r.T, e.Wait(r.S2))
		r.Read(r.S2, r.X)
	},
	"a wait is for the record before it": func(r *Raced, right bool) {
		r.Fill(r.S1, r.X)
		e := r.Record(r.S1)
		require.NoError(r.T, e.Wait(r.S2))
		r.Fill(r.S1, r.Y)
		require.NoError(r.T, e.Record(r.S1))
		r.Read(r.S2, map[bool]*cuda.Buffer[float32]{true: r.X, false: r.Y}[right])
	},
	"an event with timing": func(r *Raced, right bool) {
		e := NewEvent(r.T, Timed())
		r.Fill(r.S1, r.X)
		require.NoError(r.T, e.Record(r.S1))
		if right {
			require.NoError(r.T, e.Wait(r.S2))
		}
		r.Read(r.S2, r.X)
	},
	"over a third stream": func(r *Raced, right bool) {
		third := NewStream(r.T, r.Device, nil)
		r.Fill(r.S1, r.X)
		if right {
			r.Wait(third, r.S1)
		}
		r.Wait(r.S2, third)
		r.Read(r.S2, r.X)
	},
	"over a stream that is closed": func(r *Raced, right bool) {
		third, err := r.Device.NewStream(nil)
		require.NoError(r.T, err)
		r.Fill(third, r.X)
		if right {
			r.Wait(r.S2, third)
		}
		require.NoError(r.T, third.Close())
		r.Read(r.S2, r.X)
	},
	"the host synchronizes the stream": func(r *Raced, right bool) {
		r.Fill(r.S1, r.X)
		r.Synchronize(map[bool]*cuda.Stream{true: r.S1, false: r.S2}[right])
		r.Read(r.S2, r.X)
	},
	"the host synchronizes an event": func(r *Raced, right bool) {
		before := r.Record(r.S1)
		r.Fill(r.S1, r.X)
		after := r.Record(r.S1)
		r.Synchronize(map[bool]*cuda.Event{true: after, false: before}[right])
		r.Read(r.S2, r.X)
	},
	"the host asks until it is done": func(r *Raced, right bool) {
		r.Fill(r.S1, r.X)
		for done := !right; !done; time.Sleep(time.Microsecond) {
			done = Query(r.T, r.S1)
		}
		r.Read(r.S2, r.X)
	},
	"the host asks how long it took": func(r *Raced, right bool) {
		begin, end := NewEvent(r.T, Timed()), NewEvent(r.T, Timed())
		require.NoError(r.T, begin.Record(r.S1))
		r.Fill(r.S1, r.X)
		require.NoError(r.T, end.Record(r.S1))
		for err := cuda.ErrNotCompleted; right && err != nil; time.Sleep(time.Microsecond) {
			_, err = begin.ElapsedTime(end)
		}
		r.Read(r.S2, r.X)
	},
	"the host synchronizes the device": func(r *Raced, right bool) {
		r.Fill(r.S1, r.X)
		if right {
			r.Synchronize(r.Device)
		}
		r.Read(r.S2, r.X)
	},
	"the host synchronizes the device of a stream that is closed": func(r *Raced, right bool) {
		s, err := r.Device.NewStream(nil)
		require.NoError(r.T, err)
		r.Fill(s, r.X)
		require.NoError(r.T, s.Close())
		if right {
			r.Synchronize(r.Device)
		}
		r.Read(r.S2, r.X)
	},
	"a stream that synchronises with the default stream": func(r *Raced, right bool) {
		s := NewStream(r.T, r.Device, &cuda.StreamOptions{SyncWithDefault: right})
		r.Fill(r.Device.DefaultStream(), r.X)
		r.Read(s, r.X)
	},
	"the default stream after one that synchronises with it": func(r *Raced, right bool) {
		s := NewStream(r.T, r.Device, &cuda.StreamOptions{SyncWithDefault: right})
		r.Fill(s, r.X)
		r.Read(r.Device.DefaultStream(), r.X)
	},
	"two streams with work of the default stream between them": func(r *Raced, right bool) {
		a, b := r.Blocking(), r.Blocking()
		r.Fill(a, r.X)
		if right {
			r.Fill(r.Device.DefaultStream(), r.Y)
		}
		r.Read(b, r.X)
	},
	"an event of the default stream": func(r *Raced, right bool) {
		s := NewStream(r.T, r.Device, &cuda.StreamOptions{SyncWithDefault: right})
		r.Fill(s, r.X)
		require.NoError(r.T, r.Record(r.Device.DefaultStream()).Wait(r.S2))
		r.Read(r.S2, r.X)
	},
	"an event behind the default stream": func(r *Raced, right bool) {
		s := NewStream(r.T, r.Device, &cuda.StreamOptions{SyncWithDefault: right})
		r.Fill(r.Device.DefaultStream(), r.X)
		require.NoError(r.T, r.Record(s).Wait(r.S2))
		r.Read(r.S2, r.X)
	},
	"a stream that is closed before work of the default stream": func(r *Raced, right bool) {
		s, err := r.Device.NewStream(&cuda.StreamOptions{SyncWithDefault: right})
		require.NoError(r.T, err)
		r.Fill(s, r.X)
		require.NoError(r.T, s.Close())
		r.Read(r.Device.DefaultStream(), r.X)
	},
	"memory used before its allocation is reached": func(r *Raced, right bool) {
		b := AllocAsync[float32](r.T, r.S1, RacedLen)
		if right {
			r.Wait(r.S2, r.S1)
		}
		r.Fill(r.S2, b)
		r.Wait(r.S1, r.S2)
	},
	"parts of memory": func(r *Raced, right bool) {
		from := map[bool]int{true: 100, false: 99}[right]
		r.Fill(r.S1, Range(r.T, r.X, 0, 100))
		r.Update(r.S2, Range(r.T, r.X, from, 200))
	},
	"columns of a matrix": func(r *Raced, right bool) {
		m := func(s *cuda.Stream, column int) {
			host := AllocHost[float32](r.T, r.Device, 16)
			require.NoError(r.T, cuda.Copy2D(s, Range(r.T, r.X, column, 512), 64, host, 2, 2, 8))
		}
		m(r.S1, 10)
		m(r.S2, map[bool]int{true: 12, false: 11}[right])
	},
	"a slice": func(r *Raced, right bool) {
		require.NoError(r.T, cuda.CopyFromSlice(context.Background(), r.S1, r.X, make([]float32, RacedLen)))
		if right {
			r.Wait(r.S2, r.S1)
		}
		r.Read(r.S2, r.X)
	},
	"pinned memory that two streams use": func(r *Raced, right bool) {
		h := AllocHost[float32](r.T, r.Device, RacedLen)
		require.NoError(r.T, cuda.Copy(r.S1, h, r.X))
		if right {
			r.Wait(r.S2, r.S1)
		}
		require.NoError(r.T, cuda.Copy(r.S2, r.Y, h))
	},
}
