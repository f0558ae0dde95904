package testgpu

import (
	"context"
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

// RacePrograms are programs that are right, and wrong without what they do if right.
var RacePrograms = map[string]func(r *Raced, right bool){
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
	"a host function that lets the host go on": func(r *Raced, right bool) {
		done := make(chan struct{})
		r.Fill(r.S1, r.X)
		release := Hold(r.T, r.S1)
		require.NoError(r.T, r.S1.LaunchHostFunc(func(error) { close(done) }))
		if right {
			release()
			<-done
		}
		r.Read(r.S2, r.X)
		release()
	},
	"a host function that waits for the host": func(r *Raced, right bool) {
		done, read := make(chan struct{}), NewEvent(r.T, nil)
		r.Fill(r.S1, r.X)
		require.NoError(r.T, r.S2.LaunchHostFunc(func(error) {
			if right {
				<-done
			}
		}))
		r.Read(r.S2, r.X) // is put there before the host knows
		require.NoError(r.T, read.Record(r.S2))
		if !right {
			r.Synchronize(read)
		}
		r.Synchronize(r.S1)
		close(done)
	},
	"a hold that is released when the host knows": func(r *Raced, right bool) {
		release := Hold(r.T, r.S2)
		r.Read(r.S2, r.X)
		r.Fill(r.S1, r.X)
		if right {
			r.Synchronize(r.S1)
		}
		release()
		r.Synchronize(r.S2)
	},
	"a word in memory": func(r *Raced, right bool) {
		w := Alloc[uint32](r.T, r.Device, 1)
		require.NoError(r.T, cuda.Fill(r.S1, w, 0))
		r.Synchronize(r.S1)
		if right {
			require.NoError(r.T, r.S2.WaitValue(w, 1))
		}
		r.Read(r.S2, r.X) // is put there before what it comes after
		r.Fill(r.S1, r.X)
		require.NoError(r.T, r.S1.WriteValue(w, 1))
	},
	"a word that a copy writes": func(r *Raced, right bool) {
		w, one := Alloc[uint32](r.T, r.Device, 1), AllocHost[uint32](r.T, r.Device, 1)
		one.Slice()[0] = 1
		require.NoError(r.T, cuda.Fill(r.S1, w, 0))
		r.Synchronize(r.S1)
		if right {
			require.NoError(r.T, r.S2.WaitValue(w, 1))
		}
		r.Read(r.S2, r.X)
		r.Fill(r.S1, r.X)
		require.NoError(r.T, cuda.Copy(r.S1, w, one))
	},
	"a word that the host watches": func(r *Raced, right bool) {
		w := AllocHost[uint32](r.T, r.Device, 1)
		r.Fill(r.S1, r.X)
		if right {
			require.NoError(r.T, r.S1.WriteValue(w, 1))
			r.Synchronize(r.S2) // which is idle
			time.Sleep(10 * time.Millisecond)
		}
		r.Read(r.S2, r.X)
	},
	"a graph, within": func(r *Raced, right bool) {
		x := Instantiate(r.T, Capture(r.T, r.S1, func() {
			r.Wait(r.S2, r.S1)
			r.Fill(r.S1, r.X)
			if right {
				r.Wait(r.S2, r.S1)
			}
			r.Update(r.S2, r.X)
			r.Wait(r.S1, r.S2)
		}))
		require.NoError(r.T, x.Launch(r.S1))
		require.NoError(r.T, x.Launch(r.S2)) // begins after the launch before
	},
	"a graph that joins": func(r *Raced, right bool) {
		x := Instantiate(r.T, Capture(r.T, r.S1, func() {
			r.Wait(r.S2, r.S1)
			r.Fill(r.S1, r.Y)
			r.Fill(r.S2, r.X)
			if right {
				r.Wait(r.S1, r.S2)
			}
			r.Update(r.S1, r.Y)
			r.Update(r.S1, r.X)
			r.Wait(r.S1, r.S2)
		}))
		require.NoError(r.T, x.Launch(r.S1))
	},
	"a graph on two devices": func(r *Raced, right bool) {
		other, err := r.Device.Driver().OpenDevice(1)
		require.NoError(r.T, err)
		s, x := NewStream(r.T, other, nil), Alloc[float32](r.T, other, RacedLen)
		exec := Instantiate(r.T, Capture(r.T, r.S1, func() {
			r.Wait(s, r.S1)
			r.Fill(s, x)
			r.Wait(r.S1, s)
		}))
		require.NoError(r.T, exec.Launch(r.S1))
		if right {
			r.Synchronize(other)
		}
		r.Read(s, x)
		r.Synchronize(other)
	},
	"a graph, and what is before it": func(r *Raced, right bool) {
		x := Instantiate(r.T, Capture(r.T, r.S1, func() { r.Update(r.S1, r.X) }))
		r.Fill(r.S2, r.X)
		if right {
			r.Wait(r.S1, r.S2)
		}
		require.NoError(r.T, x.Launch(r.S1))
	},
	"a graph, and what is behind it": func(r *Raced, right bool) {
		x := Instantiate(r.T, Capture(r.T, r.S1, func() {
			r.Wait(r.S2, r.S1)
			r.Update(r.S2, r.X)
			r.Wait(r.S1, r.S2)
		}))
		require.NoError(r.T, x.Launch(r.S1))
		if right {
			r.Wait(r.S2, r.S1) // its nodes do not run on the streams that were captured
		}
		r.Read(r.S2, r.X)
	},
	"an event recorded in a graph": func(r *Raced, right bool) {
		e := NewEvent(r.T, External())
		x := Instantiate(r.T, Capture(r.T, r.S1, func() {
			if !right {
				require.NoError(r.T, e.Record(r.S1))
			}
			r.Fill(r.S1, r.X)
			if right {
				require.NoError(r.T, e.Record(r.S1))
			}
		}))
		require.NoError(r.T, x.Launch(r.S1))
		require.NoError(r.T, e.Wait(r.S2))
		r.Read(r.S2, r.X)
	},
	"an event waited for in a graph": func(r *Raced, right bool) {
		e := NewEvent(r.T, External())
		x := Instantiate(r.T, Capture(r.T, r.S1, func() {
			if right {
				require.NoError(r.T, e.Wait(r.S1))
			}
			r.Update(r.S1, r.X)
		}))
		r.Fill(r.S2, r.X)
		require.NoError(r.T, e.Record(r.S2))
		require.NoError(r.T, x.Launch(r.S1))
	},
	"a word that was written before": func(r *Raced, right bool) {
		w := Alloc[uint32](r.T, r.Device, 1)
		require.NoError(r.T, cuda.Fill(r.S1, w, 0))
		r.Fill(r.S1, r.X)
		require.NoError(r.T, r.S1.WriteValue(w, 1))
		if right {
			require.NoError(r.T, r.S2.WaitValue(w, 1))
		}
		r.Read(r.S2, r.X)
	},
	"a word that is set back": func(r *Raced, right bool) {
		w := Alloc[uint32](r.T, r.Device, 1)
		for range 2 {
			require.NoError(r.T, cuda.Fill(r.S1, w, 0))
			r.Synchronize(r.S1)
			require.NoError(r.T, r.S2.WaitValue(w, 1))
			r.Read(r.S2, r.X)
			if right {
				r.Fill(r.S1, r.X)
			}
			require.NoError(r.T, r.S1.WriteValue(w, 1))
			if !right {
				r.Fill(r.S1, r.X)
			}
			r.Synchronize(r.S2)
			r.Synchronize(r.S1)
		}
	},
	"words, the last one first": func(r *Raced, right bool) {
		var w [3]*cuda.Buffer[uint32]
		for i := range w {
			w[i] = Alloc[uint32](r.T, r.Device, 1)
			require.NoError(r.T, cuda.Fill(r.S1, w[i], 0))
		}
		r.Synchronize(r.S1)
		require.NoError(r.T, r.S2.WaitValue(w[0], 1))
		r.Read(r.S2, r.X)
		require.NoError(r.T, r.S2.WaitValue(w[1], 1))
		require.NoError(r.T, r.S2.WaitValue(w[2], 1))
		r.Read(r.S2, r.Y)
		require.NoError(r.T, r.S1.WriteValue(w[2], 1))
		require.NoError(r.T, r.S1.WriteValue(w[1], 1))
		r.Fill(r.S1, r.Y)
		if right {
			r.Fill(r.S1, r.X)
		}
		require.NoError(r.T, r.S1.WriteValue(w[0], 1))
		if !right {
			r.Fill(r.S1, r.X)
		}
	},
	"a word in a graph": func(r *Raced, right bool) {
		w := Alloc[uint32](r.T, r.Device, 1)
		require.NoError(r.T, cuda.Fill(r.S1, w, 0))
		x := Instantiate(r.T, Capture(r.T, r.S1, func() {
			r.Wait(r.S2, r.S1)
			require.NoError(r.T, r.S2.WaitValue(w, 1))
			r.Update(r.S2, r.X)
			if right {
				r.Fill(r.S1, r.X)
			}
			require.NoError(r.T, r.S1.WriteValue(w, 1))
			if !right {
				r.Fill(r.S1, r.X)
			}
			r.Wait(r.S1, r.S2)
			require.NoError(r.T, cuda.Fill(r.S1, w, 0))
		}))
		require.NoError(r.T, x.Launch(r.S1))
		require.NoError(r.T, x.Launch(r.S1))
	},
	"what is behind a host function, and then read": func(r *Raced, right bool) {
		done, ended := make(chan struct{}), NewEvent(r.T, nil)
		third := NewStream(r.T, r.Device, nil)
		require.NoError(r.T, r.S2.LaunchHostFunc(func(error) { <-done }))
		require.NoError(r.T, ended.Record(r.S2))
		r.Update(r.S2, r.X)
		if right {
			r.Wait(third, r.S2)
		}
		r.Fill(r.S1, r.X) // which the host knows to be done before the function ends
		r.Synchronize(r.S1)
		close(done)
		r.Synchronize(ended)
		r.Read(third, r.X)
	},
	"two executable graphs with one host function": func(r *Raced, right bool) {
		calls := make(chan struct{}, 2)
		g := Capture(r.T, r.S1, func() {
			require.NoError(r.T, r.S1.LaunchHostFunc(func(error) { calls <- struct{}{} }))
		})
		first, second := Instantiate(r.T, g), Instantiate(r.T, g)
		third, w := NewStream(r.T, r.Device, nil), Alloc[uint32](r.T, r.Device, 1)
		require.NoError(r.T, cuda.Fill(third, w, 0))
		r.Synchronize(third)
		r.Fill(r.S1, r.X)
		if right {
			r.Wait(third, r.S1)
		}
		require.NoError(r.T, r.S1.WaitValue(w, 1))
		require.NoError(r.T, first.Launch(r.S1))
		require.NoError(r.T, second.Launch(r.S2))
		<-calls // the second's
		r.Read(third, r.X)
		require.NoError(r.T, third.WriteValue(w, 1))
		<-calls
	},
}
