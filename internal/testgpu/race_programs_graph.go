package testgpu

import (
	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
)

// graphPrograms are of graphs.
var graphPrograms = map[string]RaceProgram{
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
