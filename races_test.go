package cuda_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// racing opens a simulated GPU by a table of DetectRaces.
func racing(t *testing.T, change func(*driver.API)) *testgpu.Raced {
	gpu := cudatest.New(cudatest.Config{AllowRaces: true})
	api := *gpu.API()
	if change != nil {
		change(&api)
	}
	return testgpu.NewRaced(t, testgpu.Open(t, cuda.DetectRaces(&api)).Device())
}

func TestRaceIsAnErrorOfSynchronize(t *testing.T) {
	for name, synchronize := range map[string]func(r *testgpu.Raced, e *cuda.Event) error{
		"stream": func(r *testgpu.Raced, _ *cuda.Event) error { return r.S2.Synchronize() },
		"an idle stream": func(r *testgpu.Raced, _ *cuda.Event) error {
			return testgpu.NewStream(r.T, r.Device, nil).Synchronize()
		},
		"event":  func(_ *testgpu.Raced, e *cuda.Event) error { return e.Synchronize() },
		"device": func(r *testgpu.Raced, _ *cuda.Event) error { return r.Device.Synchronize() },
	} {
		t.Run(name, func(t *testing.T) {
			r := racing(t, nil)
			r.Fill(r.S1, r.X)
			r.Read(r.S2, r.X)
			e := r.Record(r.S2)
			err := synchronize(r, e)
			require.ErrorIs(t, err, cuda.ErrRace)
			require.ErrorContains(t, err, "are not ordered; add an event")
			require.NoError(t, synchronize(r, e), "it is told once")
			require.NoError(t, r.Device.Synchronize())
		})
	}
}

func TestOnRace(t *testing.T) {
	r := racing(t, nil)
	var found []string
	r.Device.Driver().OnRace(func(report string) { found = append(found, report) })
	r.Fill(r.S1, r.X)
	require.Empty(t, found)
	r.Read(r.S2, r.X)
	require.Len(t, found, 1, "at once")
	require.NoError(t, r.Device.Synchronize())
	r.Device.Driver().OnRace(nil)
	r.Fill(r.S1, r.Y)
	r.Read(r.S2, r.Y)
	require.ErrorIs(t, r.Device.Synchronize(), cuda.ErrRace)

	_, d := testgpu.SimulatedDevice(t, nil) // that does not look for any
	d.Driver().OnRace(func(string) { t.Error("called") })
	(*cuda.Driver)(nil).OnRace(nil)
}

// What the driver refuses has used nothing.
func TestRefusedOperationsAreNoRaces(t *testing.T) {
	refuse := false
	r := racing(t, func(api *driver.API) {
		set, call := api.MemsetD32Async, api.LaunchHostFunc
		api.MemsetD32Async = func(p driver.DevicePtr, v uint32, n uint64, s driver.Stream) driver.Result {
			if refuse {
				return driver.ErrorInvalidValue
			}
			return set(p, v, n, s)
		}
		api.LaunchHostFunc = func(s driver.Stream, f driver.HostFunc) driver.Result {
			if refuse {
				return driver.ErrorInvalidValue
			}
			return call(s, f)
		}
	})
	refuse = true
	require.Error(t, cuda.Fill(r.S1, r.X, 1))
	require.Error(t, r.S1.LaunchHostFunc(func(error) {}))
	refuse = false
	r.Fill(r.S2, r.X)
	require.NoError(t, r.Device.Synchronize())
	require.NoError(t, r.S1.LaunchHostFunc(func(error) {}))
	require.NoError(t, r.Device.Synchronize())
}

func TestReadsAndAtomics(t *testing.T) {
	type of func(b *cuda.Buffer[float32]) any
	writes, reads, atomics := of(func(b *cuda.Buffer[float32]) any { return b }),
		of(func(b *cuda.Buffer[float32]) any { return cuda.Reads(b) }), of(func(b *cuda.Buffer[float32]) any { return cuda.Atomics(b) })
	for name, c := range map[string]struct {
		first, second of
		race          bool
	}{
		"reads, reads":     {reads, reads, false},
		"reads, writes":    {reads, writes, true},
		"writes, reads":    {writes, reads, true},
		"writes, writes":   {writes, writes, true},
		"atomics, atomics": {atomics, atomics, false},
		"atomics, reads":   {atomics, reads, true},
		"writes, atomics":  {writes, atomics, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := racing(t, nil)
			fill := testgpu.Kernel(t, testgpu.Kernels(t, r.Device), "purecuda_fill")
			require.NoError(t, fill.Launch(r.S1, cuda.Grid1D(1, 32), c.first(r.X), uint64(32), uint32(1)))
			prepared, err := fill.Prepare(c.first(r.Y), uint64(32), uint32(1))
			require.NoError(t, err)
			require.NoError(t, prepared.Set(0, c.second(r.X)))
			require.NoError(t, prepared.Launch(r.S2, cuda.Grid1D(1, 32)))
			err = r.Device.Synchronize()
			if !c.race {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, cuda.ErrRace)
		})
	}
}

func TestAccessOfNothing(t *testing.T) {
	r := racing(t, nil)
	fill := testgpu.Kernel(t, testgpu.Kernels(t, r.Device), "purecuda_fill")
	closed, err := cuda.Alloc[float32](r.Device, 1)
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	for _, a := range []*cuda.Access{nil, {}, cuda.Reads[float32](nil), cuda.Reads((*cuda.Buffer[float32])(nil)), cuda.Atomics(closed)} {
		require.NotEmpty(t, a.String())
		require.Error(t, fill.Launch(r.S1, cuda.Grid1D(1, 1), a, uint64(1), uint32(1)))
	}
	require.Nil(t, cuda.DetectRaces(nil))
	_, err = cuda.OpenDriver(cuda.DetectRaces(&driver.API{}))
	require.ErrorContains(t, err, "cu", "the function that is missing")
}

// BenchmarkDetectRaces shows what calls take on a GPU with the detector and without.
func BenchmarkDetectRaces(b *testing.B) {
	plain := testgpu.RealDriver(b)
	detecting, err := cuda.Open(&cuda.Options{DetectRaces: true})
	require.NoError(b, err)
	for name, drv := range map[string]*cuda.Driver{"plain": plain, "detecting": detecting} {
		d, err := drv.OpenDevice(0)
		require.NoError(b, err)
		s, other, e := testgpu.NewStream(b, d, nil), testgpu.NewStream(b, d, nil), testgpu.NewEvent(b, nil)
		x := testgpu.Alloc[float32](b, d, 1024)
		fill, err := testgpu.Kernel(b, testgpu.Kernels(b, d), "purecuda_fill").Prepare(x, uint64(1024), uint32(1))
		require.NoError(b, err)
		for call, f := range map[string]func() error{
			"Record":     func() error { return e.Record(s) },
			"Wait":       func() error { return e.Wait(other) },
			"Query":      func() error { _, err := e.Query(); return err },
			"WaitStream": func() error { return other.WaitStream(s) },
			"Fill":       func() error { return cuda.Fill(s, x, 1) },
			"Launch":     func() error { return fill.Launch(s, cuda.Grid1D(1024, 256)) },
		} {
			b.Run(call+"/"+name, func(b *testing.B) {
				for i := 0; b.Loop(); i++ {
					if err := f(); err != nil {
						b.Fatal(err)
					}
					if i%512 == 511 { // before the queue is full
						b.StopTimer()
						require.NoError(b, d.Synchronize())
						b.StartTimer()
					}
				}
			})
		}
	}
}
