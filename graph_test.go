package cuda_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestGraphsOfAnotherDriver(t *testing.T) {
	_, d := testgpu.SimulatedDevice(t, nil)
	_, far := testgpu.SimulatedDevice(t, nil)
	s, there := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, far, nil)
	p, q := testgpu.NewPipe(t, d), testgpu.NewPipe(t, far)
	x := testgpu.Instantiate(t, testgpu.Capture(t, s, func() { p.Enqueue(t, s) }))
	foreign := testgpu.Capture(t, there, func() { q.Enqueue(t, there) })
	for name, err := range map[string]error{"Launch": x.Launch(there), "Upload": x.Upload(there), "Update": x.Update(foreign)} {
		require.ErrorIs(t, err, cuda.ErrDeviceMismatch, name)
	}
	p.RequireLaunches(t, x, s)
}

func TestNilGraphIsAnError(t *testing.T) {
	_, d := testgpu.SimulatedDevice(t, nil)
	s := testgpu.NewStream(t, d, nil)
	x := testgpu.Instantiate(t, testgpu.Capture(t, s, func() {}))
	for _, g := range []*cuda.Graph{nil, {}} {
		_, nodesErr := g.Nodes()
		_, instantiateErr := g.Instantiate()
		for name, err := range map[string]error{"Nodes": nodesErr, "Instantiate": instantiateErr, "Update": x.Update(g)} {
			require.ErrorIs(t, err, cuda.ErrInvalid, name)
		}
		require.NoError(t, g.Close())
		require.Equal(t, "cuda.Graph(nil)", g.String())
	}
	g := testgpu.Capture(t, s, func() {})
	for _, x := range []*cuda.GraphExec{nil, {}} {
		for name, err := range map[string]error{"Launch": x.Launch(s), "Upload": x.Upload(s), "Update": x.Update(g)} {
			require.ErrorIs(t, err, cuda.ErrInvalid, name)
		}
		require.NoError(t, x.Close())
		require.Equal(t, "cuda.GraphExec(nil)", x.String())
	}
	require.ErrorIs(t, x.Launch(nil), cuda.ErrInvalid)
}

// Closing races with launches and updates: each call works or says closed, and
// everything is released.
func TestGraphCloseRaces(t *testing.T) {
	_, d := testgpu.SimulatedDevice(t, nil)
	s, other, p := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil), testgpu.NewPipe(t, d)
	before := d.Driver().Stats()
	for range 100 {
		buf, err := cuda.AllocAsync[uint32](s, 1000)
		require.NoError(t, err)
		require.NoError(t, other.WaitStream(s))
		g, err := s.Capture(func() error { return cuda.Copy(s, p.Out, buf) })
		require.NoError(t, err)
		x, err := g.Instantiate()
		require.NoError(t, err)
		var wg sync.WaitGroup
		for _, f := range []func() error{
			func() error { return x.Launch(s) },
			func() error { return x.Launch(other) },
			func() error { return x.Update(g) },
			func() error { _, err := g.Nodes(); return err },
		} {
			wg.Go(func() {
				for range 20 {
					if err := f(); err != nil {
						require.ErrorIs(t, err, cuda.ErrClosed)
					}
				}
			})
		}
		for _, f := range []func() error{g.Close, x.Close, buf.Close} {
			wg.Go(func() {
				if err := f(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	require.Equal(t, before, d.Driver().Stats())
}

// A launch that the driver refuses says so and changes nothing.
func TestLostDeviceRefusesGraphs(t *testing.T) {
	gpu := cudatest.New(cudatest.Config{})
	drv, err := cuda.OpenDriver(gpu.API())
	require.NoError(t, err)
	drv.OnCleanupError(func(error) {})
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	s, err := d.NewStream(nil)
	require.NoError(t, err)
	g, err := s.Capture(func() error { return s.LaunchHostFunc(func(error) { t.Error("called") }) })
	require.NoError(t, err)
	x, err := g.Instantiate()
	require.NoError(t, err)
	gpu.Fault(s, driver.ErrorLaunchFailed)
	require.ErrorIs(t, s.Synchronize(), cuda.ErrDeviceLost)
	_, instantiateErr := g.Instantiate()
	_, captureErr := s.Capture(func() error { return nil })
	for name, err := range map[string]error{"Launch": x.Launch(s), "Upload": x.Upload(s), "Update": x.Update(g),
		"Instantiate": instantiateErr, "Capture": captureErr} {
		require.ErrorIs(t, err, cuda.ErrDeviceLost, name)
	}
	time.Sleep(3 * testgpu.Soon) // the watch would have called the host function
}
