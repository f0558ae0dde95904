package cudatest_test

import (
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/internal/testgpu"
)

// raced is what a program works on that may lack a wait, on a simulated GPU.
type raced struct {
	*testgpu.Raced
	gpu *cudatest.GPU
}

func newRaced(t *testing.T, c cudatest.Config) *raced {
	gpu := cudatest.New(c)
	return &raced{testgpu.NewRaced(t, testgpu.Open(t, gpu.API()).Device()), gpu}
}

// races returns the races when all work is done.
func (r *raced) races() (races []string) {
	r.Synchronize(r.Device)
	for _, p := range r.gpu.Problems() {
		if strings.HasPrefix(p, "race: ") {
			races = append(races, p)
		}
	}
	return races
}

// Each wrong program is found each time, by one race at least, and no right one.
func TestRaces(t *testing.T) {
	real := func(t *testing.T, f func(*testing.T)) { f(t) }
	for name, program := range testgpu.RacePrograms() {
		for time, within := range map[string]func(*testing.T, func(*testing.T)){"real": real, "virtual": synctest.Test} {
			t.Run(name+", "+time, func(t *testing.T) {
				for range 5 {
					within(t, func(t *testing.T) {
						r := newRaced(t, cudatest.Config{Devices: 2})
						program(r.Raced, true)
						require.Empty(t, r.races())
					})
					within(t, func(t *testing.T) {
						r := newRaced(t, cudatest.Config{Devices: 2})
						program(r.Raced, false)
						require.NotEmpty(t, r.races())
					})
				}
			})
		}
	}
}

func TestAllowRaces(t *testing.T) {
	r := newRaced(t, cudatest.Config{AllowRaces: true, Devices: 2})
	for _, program := range testgpu.RacePrograms() {
		program(r.Raced, true)
		program(r.Raced, false)
	}
	require.Empty(t, r.races())
}

// A race is reported once, with the lines of the user's code, however often it happens and
// whatever is between that code and the simulated GPU.
func TestRaceReport(t *testing.T) {
	gpu := cudatest.New(cudatest.Config{})
	api := *gpu.API()
	testgpu.Wrap(&api, func(_ reflect.StructField, _ []reflect.Value, call func() []reflect.Value) []reflect.Value {
		return call()
	})
	d := testgpu.Open(t, &api).Device()
	r := &raced{&testgpu.Raced{T: t, Device: d, S1: testgpu.NewStream(t, d, nil)}, gpu}
	r.X = testgpu.Alloc[float32](t, d, 16)
	one, two := d.DefaultStream(), r.S1
	for range 3 {
		require.NoError(t, cuda.Fill(one, r.X, 1))
		require.NoError(t, cuda.Fill(two, testgpu.Range(t, r.X, 4, 6), 1))
	}
	races := r.races()
	require.Len(t, races, 1)
	require.Regexp(t, `^race: fill at races_test\.go:\d+ and fill at races_test\.go:\d+ are not ordered; `+
		`add an event that is recorded after one and waited for before the other, or WaitStream
	fill on default stream of device 0 writes bytes 16 to 23 of the memory made at races_test\.go:\d+
	fill on stream made at races_test\.go:\d+ writes them$`, races[0])
}

// In a graph, the report has the line of the capture and that of the launch.
func TestRaceReportOfAGraph(t *testing.T) {
	r := newRaced(t, cudatest.Config{})
	x := testgpu.Instantiate(t, testgpu.Capture(t, r.S1, func() { r.Update(r.S1, r.X) }))
	r.Fill(r.S2, r.X)
	require.NoError(t, x.Launch(r.S1))
	races := r.races()
	require.Len(t, races, 1)
	require.Regexp(t, `and kernel purecuda_affine at races_test\.go:\d+, of the graph launched at races_test\.go:\d+, are not ordered`, races[0])
}

func TestManyRaces(t *testing.T) {
	var r raced
	synctest.Test(t, func(t *testing.T) {
		r = *newRaced(t, cudatest.Config{})
		for range 10_000 {
			r.Fill(r.S1, r.X)
			r.Fill(r.S2, r.X)
		}
		require.Len(t, r.races(), 1)
	})
}

// Processes that share memory must order their work as streams do.
func TestRacesOfProcesses(t *testing.T) {
	for name, right := range map[string]bool{"a wait": true, "the end of the other": true, "neither": false} {
		t.Run(name, func(t *testing.T) {
			gpu := cudatest.New(cudatest.Config{})
			exporter := gpu.NewProcess()
			p := &testgpu.Peers{GPU: gpu, Exporter: exporter, There: testgpu.Open(t, exporter.API()), Here: testgpu.Open(t, gpu.NewProcess().API())}
			there, here := p.There.Device(), p.Here.Device()
			x := testgpu.Alloc[float32](t, there, 16)
			opened := testgpu.OpenBuffer[float32](t, p, x, nil)
			theirs, ours := p.Shared(t)
			s, other := testgpu.NewStream(t, there, nil), testgpu.NewStream(t, here, nil)
			require.NoError(t, cuda.Fill(s, x, 1))
			require.NoError(t, theirs.Record(s))
			switch name {
			case "a wait":
				require.NoError(t, ours.Wait(other))
			case "the end of the other":
				time.Sleep(time.Millisecond)
				exporter.Kill()
			}
			require.NoError(t, cuda.Copy(other, testgpu.AllocHost[float32](t, here, 16), opened))
			r := &raced{&testgpu.Raced{T: t, Device: here}, gpu}
			if name != "the end of the other" {
				r.Synchronize(there)
			}
			races := r.races()
			require.Equal(t, right, len(races) == 0, "%v", races)
		})
	}
}
