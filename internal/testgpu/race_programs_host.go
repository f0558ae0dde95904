package testgpu

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
)

// hostPrograms are of what the CPU may hold up: host functions, and waits for words of memory.
var hostPrograms = map[string]RaceProgram{
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
}
