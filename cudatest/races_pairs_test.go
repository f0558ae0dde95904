package cudatest_test

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/testgpu"
)

// pairs are programs that are right, and wrong without what they do if right.
var pairs = map[string]func(r *raced, right bool){
	"write, read": func(r *raced, right bool) {
		r.fill(r.s1, r.x)
		if right {
			r.wait(r.s2, r.s1)
		}
		r.read(r.s2, r.x)
	},
	"read, write": func(r *raced, right bool) {
		r.read(r.s1, r.x)
		if right {
			r.wait(r.s2, r.s1)
		}
		r.fill(r.s2, r.x)
	},
	"write, write": func(r *raced, right bool) {
		r.fill(r.s1, r.x)
		if right {
			r.wait(r.s2, r.s1)
		}
		r.fill(r.s2, r.x)
	},
	"kernel, read": func(r *raced, right bool) {
		r.update(r.s1, r.x)
		if right {
			r.wait(r.s2, r.s1)
		}
		r.read(r.s2, r.x)
	},
	"two kernels": func(r *raced, right bool) {
		r.update(r.s1, r.x)
		if right {
			r.wait(r.s2, r.s1)
		}
		r.update(r.s2, r.x)
	},
	"an event, waited for when it is long done": func(r *raced, right bool) {
		r.fill(r.s1, r.x)
		e := r.record(r.s1)
		time.Sleep(time.Millisecond)
		if right {
			require.NoError(r.t, e.Wait(r.s2))
		}
		r.read(r.s2, r.x)
	},
	"an event recorded too early": func(r *raced, right bool) {
		e := r.record(r.s1)
		r.fill(r.s1, r.x)
		if right {
			require.NoError(r.t, e.Record(r.s1))
		}
		require.NoError(r.t, e.Wait(r.s2))
		r.read(r.s2, r.x)
	},
	"a wait is for the record before it": func(r *raced, right bool) {
		r.fill(r.s1, r.x)
		e := r.record(r.s1)
		require.NoError(r.t, e.Wait(r.s2))
		r.fill(r.s1, r.y)
		require.NoError(r.t, e.Record(r.s1))
		r.read(r.s2, map[bool]*cuda.Buffer[float32]{true: r.x, false: r.y}[right])
	},
	"an event with timing": func(r *raced, right bool) {
		e := testgpu.NewEvent(r.t, testgpu.Timed())
		r.fill(r.s1, r.x)
		require.NoError(r.t, e.Record(r.s1))
		if right {
			require.NoError(r.t, e.Wait(r.s2))
		}
		r.read(r.s2, r.x)
	},
	"over a third stream": func(r *raced, right bool) {
		third := testgpu.NewStream(r.t, r.d, nil)
		r.fill(r.s1, r.x)
		if right {
			r.wait(third, r.s1)
		}
		r.wait(r.s2, third)
		r.read(r.s2, r.x)
	},
	"over a stream that is closed": func(r *raced, right bool) {
		third, err := r.d.NewStream(nil)
		require.NoError(r.t, err)
		r.fill(third, r.x)
		if right {
			r.wait(r.s2, third)
		}
		require.NoError(r.t, third.Close())
		r.read(r.s2, r.x)
	},
	"the host synchronizes the stream": func(r *raced, right bool) {
		r.fill(r.s1, r.x)
		r.synchronize(map[bool]*cuda.Stream{true: r.s1, false: r.s2}[right])
		r.read(r.s2, r.x)
	},
	"the host synchronizes an event": func(r *raced, right bool) {
		before := r.record(r.s1)
		r.fill(r.s1, r.x)
		after := r.record(r.s1)
		r.synchronize(map[bool]*cuda.Event{true: after, false: before}[right])
		r.read(r.s2, r.x)
	},
	"the host asks until it is done": func(r *raced, right bool) {
		r.fill(r.s1, r.x)
		for done := !right; !done; time.Sleep(time.Microsecond) {
			done = testgpu.Query(r.t, r.s1)
		}
		r.read(r.s2, r.x)
	},
	"the host asks how long it took": func(r *raced, right bool) {
		begin, end := testgpu.NewEvent(r.t, testgpu.Timed()), testgpu.NewEvent(r.t, testgpu.Timed())
		require.NoError(r.t, begin.Record(r.s1))
		r.fill(r.s1, r.x)
		require.NoError(r.t, end.Record(r.s1))
		for err := cuda.ErrNotCompleted; right && err != nil; time.Sleep(time.Microsecond) {
			_, err = begin.ElapsedTime(end)
		}
		r.read(r.s2, r.x)
	},
	"the host synchronizes the device": func(r *raced, right bool) {
		r.fill(r.s1, r.x)
		if right {
			r.synchronize(r.d)
		}
		r.read(r.s2, r.x)
	},
	"the host synchronizes the device of a stream that is closed": func(r *raced, right bool) {
		s, err := r.d.NewStream(nil)
		require.NoError(r.t, err)
		r.fill(s, r.x)
		require.NoError(r.t, s.Close())
		if right {
			r.synchronize(r.d)
		}
		r.read(r.s2, r.x)
	},
	"a stream that synchronises with the default stream": func(r *raced, right bool) {
		s := testgpu.NewStream(r.t, r.d, &cuda.StreamOptions{SyncWithDefault: right})
		r.fill(r.d.DefaultStream(), r.x)
		r.read(s, r.x)
	},
	"the default stream after one that synchronises with it": func(r *raced, right bool) {
		s := testgpu.NewStream(r.t, r.d, &cuda.StreamOptions{SyncWithDefault: right})
		r.fill(s, r.x)
		r.read(r.d.DefaultStream(), r.x)
	},
	"two streams with work of the default stream between them": func(r *raced, right bool) {
		a, b := r.blocking(), r.blocking()
		r.fill(a, r.x)
		if right {
			r.fill(r.d.DefaultStream(), r.y)
		}
		r.read(b, r.x)
	},
	"an event of the default stream": func(r *raced, right bool) {
		s := testgpu.NewStream(r.t, r.d, &cuda.StreamOptions{SyncWithDefault: right})
		r.fill(s, r.x)
		require.NoError(r.t, r.record(r.d.DefaultStream()).Wait(r.s2))
		r.read(r.s2, r.x)
	},
	"an event behind the default stream": func(r *raced, right bool) {
		s := testgpu.NewStream(r.t, r.d, &cuda.StreamOptions{SyncWithDefault: right})
		r.fill(r.d.DefaultStream(), r.x)
		require.NoError(r.t, r.record(s).Wait(r.s2))
		r.read(r.s2, r.x)
	},
	"a stream that is closed before work of the default stream": func(r *raced, right bool) {
		s, err := r.d.NewStream(&cuda.StreamOptions{SyncWithDefault: right})
		require.NoError(r.t, err)
		r.fill(s, r.x)
		require.NoError(r.t, s.Close())
		r.read(r.d.DefaultStream(), r.x)
	},
	"memory used before its allocation is reached": func(r *raced, right bool) {
		b := testgpu.AllocAsync[float32](r.t, r.s1, racedLen)
		if right {
			r.wait(r.s2, r.s1)
		}
		r.fill(r.s2, b)
		r.wait(r.s1, r.s2)
	},
	"parts of memory": func(r *raced, right bool) {
		from := map[bool]int{true: 100, false: 99}[right]
		r.fill(r.s1, testgpu.Range(r.t, r.x, 0, 100))
		r.update(r.s2, testgpu.Range(r.t, r.x, from, 200))
	},
	"columns of a matrix": func(r *raced, right bool) {
		m := func(s *cuda.Stream, column int) {
			host := testgpu.AllocHost[float32](r.t, r.d, 16)
			require.NoError(r.t, cuda.Copy2D(s, testgpu.Range(r.t, r.x, column, 512), 64, host, 2, 2, 8))
		}
		m(r.s1, 10)
		m(r.s2, map[bool]int{true: 12, false: 11}[right])
	},
	"a slice": func(r *raced, right bool) {
		require.NoError(r.t, cuda.CopyFromSlice(r.t.Context(), r.s1, r.x, make([]float32, racedLen)))
		if right {
			r.wait(r.s2, r.s1)
		}
		r.read(r.s2, r.x)
	},
	"pinned memory that two streams use": func(r *raced, right bool) {
		h := testgpu.AllocHost[float32](r.t, r.d, racedLen)
		require.NoError(r.t, cuda.Copy(r.s1, h, r.x))
		if right {
			r.wait(r.s2, r.s1)
		}
		require.NoError(r.t, cuda.Copy(r.s2, r.y, h))
	},
	"a host function that lets the host go on": func(r *raced, right bool) {
		done := make(chan struct{})
		r.fill(r.s1, r.x)
		release := r.gpu.Hold(r.s1)
		require.NoError(r.t, r.s1.LaunchHostFunc(func(error) { close(done) }))
		if right {
			release()
			<-done
		}
		r.read(r.s2, r.x)
		release()
	},
	"a host function that waits for the host": func(r *raced, right bool) {
		done, read := make(chan struct{}), testgpu.NewEvent(r.t, nil)
		r.fill(r.s1, r.x)
		require.NoError(r.t, r.s2.LaunchHostFunc(func(error) {
			if right {
				<-done
			}
		}))
		r.read(r.s2, r.x) // is put there before the host knows
		require.NoError(r.t, read.Record(r.s2))
		if !right {
			r.synchronize(read)
		}
		r.synchronize(r.s1)
		close(done)
	},
	"a hold that is released when the host knows": func(r *raced, right bool) {
		release := r.gpu.Hold(r.s2)
		r.read(r.s2, r.x)
		r.fill(r.s1, r.x)
		if right {
			r.synchronize(r.s1)
		}
		release()
	},
	"a word in memory": func(r *raced, right bool) {
		w := testgpu.Alloc[uint32](r.t, r.d, 1)
		require.NoError(r.t, cuda.Fill(r.s1, w, 0))
		r.synchronize(r.s1)
		if right {
			require.NoError(r.t, r.s2.WaitValue(w, 1))
		}
		r.read(r.s2, r.x) // is put there before what it comes after
		r.fill(r.s1, r.x)
		require.NoError(r.t, r.s1.WriteValue(w, 1))
	},
	"a word that a copy writes": func(r *raced, right bool) {
		w, one := testgpu.Alloc[uint32](r.t, r.d, 1), testgpu.AllocHost[uint32](r.t, r.d, 1)
		one.Slice()[0] = 1
		require.NoError(r.t, cuda.Fill(r.s1, w, 0))
		r.synchronize(r.s1)
		if right {
			require.NoError(r.t, r.s2.WaitValue(w, 1))
		}
		r.read(r.s2, r.x)
		r.fill(r.s1, r.x)
		require.NoError(r.t, cuda.Copy(r.s1, w, one))
	},
	"a word that the host watches": func(r *raced, right bool) {
		w := testgpu.AllocHost[uint32](r.t, r.d, 1)
		r.fill(r.s1, r.x)
		if right {
			require.NoError(r.t, r.s1.WriteValue(w, 1))
			r.synchronize(r.s2) // which is idle
			time.Sleep(10 * time.Millisecond)
		}
		r.read(r.s2, r.x)
	},
	"a graph, within": func(r *raced, right bool) {
		x := testgpu.Instantiate(r.t, testgpu.Capture(r.t, r.s1, func() {
			r.wait(r.s2, r.s1)
			r.fill(r.s1, r.x)
			if right {
				r.wait(r.s2, r.s1)
			}
			r.update(r.s2, r.x)
			r.wait(r.s1, r.s2)
		}))
		require.NoError(r.t, x.Launch(r.s1))
		require.NoError(r.t, x.Launch(r.s2)) // begins after the launch before
	},
	"a graph that joins": func(r *raced, right bool) {
		x := testgpu.Instantiate(r.t, testgpu.Capture(r.t, r.s1, func() {
			r.wait(r.s2, r.s1)
			r.fill(r.s1, r.y)
			r.fill(r.s2, r.x)
			if right {
				r.wait(r.s1, r.s2)
			}
			r.update(r.s1, r.y)
			r.update(r.s1, r.x)
			r.wait(r.s1, r.s2)
		}))
		require.NoError(r.t, x.Launch(r.s1))
	},
	"a graph on two devices": func(r *raced, right bool) {
		other, err := r.d.Driver().OpenDevice(1)
		require.NoError(r.t, err)
		s, x := testgpu.NewStream(r.t, other, nil), testgpu.Alloc[float32](r.t, other, racedLen)
		exec := testgpu.Instantiate(r.t, testgpu.Capture(r.t, r.s1, func() {
			r.wait(s, r.s1)
			r.fill(s, x)
			r.wait(r.s1, s)
		}))
		require.NoError(r.t, exec.Launch(r.s1))
		if right {
			r.synchronize(other)
		}
		r.read(s, x)
		r.synchronize(other)
	},
	"a graph, and what is before it": func(r *raced, right bool) {
		x := testgpu.Instantiate(r.t, testgpu.Capture(r.t, r.s1, func() { r.update(r.s1, r.x) }))
		r.fill(r.s2, r.x)
		if right {
			r.wait(r.s1, r.s2)
		}
		require.NoError(r.t, x.Launch(r.s1))
	},
	"a graph, and what is behind it": func(r *raced, right bool) {
		x := testgpu.Instantiate(r.t, testgpu.Capture(r.t, r.s1, func() {
			r.wait(r.s2, r.s1)
			r.update(r.s2, r.x)
			r.wait(r.s1, r.s2)
		}))
		require.NoError(r.t, x.Launch(r.s1))
		if right {
			r.wait(r.s2, r.s1) // its nodes do not run on the streams that were captured
		}
		r.read(r.s2, r.x)
	},
	"an event recorded in a graph": func(r *raced, right bool) {
		e := testgpu.NewEvent(r.t, testgpu.External())
		x := testgpu.Instantiate(r.t, testgpu.Capture(r.t, r.s1, func() {
			if !right {
				require.NoError(r.t, e.Record(r.s1))
			}
			r.fill(r.s1, r.x)
			if right {
				require.NoError(r.t, e.Record(r.s1))
			}
		}))
		require.NoError(r.t, x.Launch(r.s1))
		require.NoError(r.t, e.Wait(r.s2))
		r.read(r.s2, r.x)
	},
	"an event waited for in a graph": func(r *raced, right bool) {
		e := testgpu.NewEvent(r.t, testgpu.External())
		x := testgpu.Instantiate(r.t, testgpu.Capture(r.t, r.s1, func() {
			if right {
				require.NoError(r.t, e.Wait(r.s1))
			}
			r.update(r.s1, r.x)
		}))
		r.fill(r.s2, r.x)
		require.NoError(r.t, e.Record(r.s2))
		require.NoError(r.t, x.Launch(r.s1))
	},
}
