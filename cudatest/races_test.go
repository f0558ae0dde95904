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

// raced is what a program works on that may forget a wait.
type raced struct {
	t      *testing.T
	gpu    *cudatest.GPU
	d      *cuda.Device
	s1, s2 *cuda.Stream
	x, y   *cuda.Buffer[float32]
	affine *cuda.Kernel
}

const racedLen = 4096

func newRaced(t *testing.T, c cudatest.Config) *raced {
	gpu := cudatest.New(c)
	d := testgpu.Open(t, gpu.API()).Device()
	r := &raced{t: t, gpu: gpu, d: d, s1: testgpu.NewStream(t, d, nil), s2: testgpu.NewStream(t, d, nil)}
	r.x, r.y = testgpu.Alloc[float32](t, d, racedLen), testgpu.Alloc[float32](t, d, racedLen)
	r.affine = testgpu.Kernel(t, testgpu.Kernels(t, d), "purecuda_affine")
	return r
}

func (r *raced) fill(s *cuda.Stream, b *cuda.Buffer[float32]) {
	require.NoError(r.t, cuda.Fill(s, b, 1))
}

// read copies b to host memory of its own.
func (r *raced) read(s *cuda.Stream, b *cuda.Buffer[float32]) {
	require.NoError(r.t, cuda.Copy(s, testgpu.AllocHost[float32](r.t, r.d, b.Len()), b))
}

// update changes b in place, by a kernel.
func (r *raced) update(s *cuda.Stream, b *cuda.Buffer[float32]) {
	require.NoError(r.t, r.affine.Launch(s, cuda.Grid1D(b.Len(), 256), struct {
		dst, src      *cuda.Buffer[float32]
		scale, offset float32
		n             uint64
	}{b, b, -1, 0, uint64(b.Len())}))
}

func (r *raced) record(s *cuda.Stream) *cuda.Event {
	e := testgpu.NewEvent(r.t, nil)
	require.NoError(r.t, e.Record(s))
	return e
}

func (r *raced) wait(s, other *cuda.Stream) { require.NoError(r.t, s.WaitStream(other)) }

func (r *raced) synchronize(s interface{ Synchronize() error }) {
	require.NoError(r.t, s.Synchronize())
}

func (r *raced) blocking() *cuda.Stream {
	return testgpu.NewStream(r.t, r.d, &cuda.StreamOptions{SyncWithDefault: true})
}

// races returns the races when all work is done.
func (r *raced) races() (races []string) {
	r.synchronize(r.d)
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
	for name, program := range pairs {
		for time, within := range map[string]func(*testing.T, func(*testing.T)){"real": real, "virtual": synctest.Test} {
			t.Run(name+", "+time, func(t *testing.T) {
				for range 5 {
					within(t, func(t *testing.T) {
						r := newRaced(t, cudatest.Config{Devices: 2})
						program(r, true)
						require.Empty(t, r.races())
					})
					within(t, func(t *testing.T) {
						r := newRaced(t, cudatest.Config{Devices: 2})
						program(r, false)
						require.NotEmpty(t, r.races())
					})
				}
			})
		}
	}
}

func TestAllowRaces(t *testing.T) {
	r := newRaced(t, cudatest.Config{AllowRaces: true, Devices: 2})
	for _, program := range pairs {
		program(r, true)
		program(r, false)
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
	r := &raced{t: t, gpu: gpu, d: d, s1: testgpu.NewStream(t, d, nil)}
	r.x = testgpu.Alloc[float32](t, d, 16)
	one, two := d.DefaultStream(), r.s1
	for range 3 {
		require.NoError(t, cuda.Fill(one, r.x, 1))
		require.NoError(t, cuda.Fill(two, testgpu.Range(t, r.x, 4, 6), 1))
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
	pairs["a graph, and what is before it"](r, false)
	races := r.races()
	require.Len(t, races, 1)
	require.Regexp(t, `and kernel purecuda_affine at races_test\.go:\d+, of the graph launched at races_pairs_test\.go:\d+, are not ordered`, races[0])
}

func TestManyRaces(t *testing.T) {
	var r raced
	synctest.Test(t, func(t *testing.T) {
		r = *newRaced(t, cudatest.Config{})
		for range 10_000 {
			r.fill(r.s1, r.x)
			r.fill(r.s2, r.x)
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
			r := &raced{t: t, gpu: gpu, d: here}
			if name != "the end of the other" {
				r.synchronize(there)
			}
			races := r.races()
			require.Equal(t, right, len(races) == 0, "%v", races)
		})
	}
}
