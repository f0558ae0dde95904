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
	"github.com/purecuda/cuda/driver"
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
			r.synchronize(r.s2) // of nothing, but time has passed
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
	require.Regexp(t, `and kernel purecuda_affine at races_test\.go:\d+, of the graph launched at races_test\.go:\d+, are not ordered`, races[0])
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

// What a kernel says of the memory that it gets counts, and what it changes.
func TestRacesOfKernels(t *testing.T) {
	for name, c := range map[string]struct {
		first, second func(l *cudatest.Launch)
		race          string
	}{
		"both read all": {
			func(l *cudatest.Launch) { cudatest.Memory[byte](l, 0) },
			func(l *cudatest.Launch) { cudatest.Memory[byte](l, 0) }, "",
		},
		"one changes a byte": {
			func(l *cudatest.Launch) { cudatest.Memory[byte](l, 0)[7]++ },
			func(l *cudatest.Launch) { cudatest.Memory[byte](l, 0) }, "bytes 7 to 7 ",
		},
		"they change bytes side by side": {
			func(l *cudatest.Launch) { cudatest.Memory[byte](l, 0)[7]++ },
			func(l *cudatest.Launch) { cudatest.Memory[byte](l, 0)[8]++ }, "",
		},
		"what lies behind is not read": {
			func(l *cudatest.Launch) { cudatest.Memory[byte](l, 0)[8]++ },
			func(l *cudatest.Launch) { cudatest.Elements[uint32](l, 0, 2) }, "",
		},
		"and what does not": {
			func(l *cudatest.Launch) { cudatest.Memory[byte](l, 0)[7]++ },
			func(l *cudatest.Launch) { cudatest.Elements[uint32](l, 0, 2) }, "bytes 7 to 7 ",
		},
		"both change a word atomically": {
			func(l *cudatest.Launch) { cudatest.Atomics[uint32](l, 0, 1)[0]++ },
			func(l *cudatest.Launch) { cudatest.Atomics[uint32](l, 0, 1)[0]++ }, "",
		},
		"one does not": {
			func(l *cudatest.Launch) { cudatest.Atomics[uint32](l, 0, 1)[0]++ },
			func(l *cudatest.Launch) { cudatest.Elements[uint32](l, 0, 1)[0]++ }, "bytes 0 to 0 ",
		},
		"what is beside": {
			func(l *cudatest.Launch) {
				cudatest.Atomics[uint32](l, 0, 1)[0]++
				cudatest.ElementsAt[uint32](l, cudatest.Arg[driver.DevicePtr](l, 0)+4, 1)[0]++
			},
			func(l *cudatest.Launch) { cudatest.Atomics[uint32](l, 0, 1)[0]++ }, "",
		},
		"an atomic operation changes nothing": {
			func(l *cudatest.Launch) { cudatest.Atomics[uint32](l, 0, 1) },
			func(l *cudatest.Launch) { cudatest.Elements[uint32](l, 0, 2) }, "bytes 0 to 3 ",
		},
		"a part, and then all": {
			func(l *cudatest.Launch) {
				p := cudatest.Arg[driver.DevicePtr](l, 0)
				cudatest.MemoryAt[byte](l, p+8)[1]++
				cudatest.MemoryAt[byte](l, p)[3]++
				cudatest.MemoryAt[byte](l, p+8)[0]++
			},
			func(l *cudatest.Launch) { cudatest.Memory[byte](l, 0) }, "bytes 3 to 9 ",
		},
		"parts that lie apart": {
			func(l *cudatest.Launch) {
				for i := range driver.DevicePtr(100) {
					cudatest.ElementsAt[byte](l, cudatest.Arg[driver.DevicePtr](l, 0)+16*(100-i), 8)[0]++
				}
			},
			func(l *cudatest.Launch) {
				for i := range driver.DevicePtr(100) {
					cudatest.ElementsAt[byte](l, cudatest.Arg[driver.DevicePtr](l, 0)+16*i+8, 8)[0]++
				}
			}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRaced(t, cudatest.Config{})
			r.fill(r.s1, r.x)
			r.synchronize(r.s1)
			m := testgpu.LoadModule(t, r.d, []byte(".version 8.0\n.target sm_80\n.address_size 64\n"+
				".visible .entry first(.param .u64 x) { ret; }\n.visible .entry second(.param .u64 x) { ret; }"))
			r.gpu.RegisterKernel("first", cudatest.Kernel{Run: c.first})
			r.gpu.RegisterKernel("second", cudatest.Kernel{Run: c.second})
			first, second := testgpu.Kernel(t, m, "first"), testgpu.Kernel(t, m, "second")
			require.NoError(t, first.Launch(r.s1, cuda.Grid1D(1, 1), r.x))
			require.NoError(t, second.Launch(r.s2, cuda.Grid1D(1, 1), r.x))
			races := r.races()
			if c.race == "" {
				require.Empty(t, races)
				return
			}
			require.Len(t, races, 1)
			require.Contains(t, races[0], c.race)
		})
	}
}

// Of pinned memory a kernel uses what it says. The rest may be the CPU's, which Go's race detector
// watches.
func TestRacesOfKernelsInPinnedMemory(t *testing.T) {
	for name, c := range map[string]struct {
		run  func(l *cudatest.Launch)
		race bool
	}{
		"all":    {func(l *cudatest.Launch) { cudatest.Memory[float32](l, 0)[0]++ }, false},
		"a part": {func(l *cudatest.Launch) { cudatest.Elements[float32](l, 0, 16)[0]++ }, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRaced(t, cudatest.Config{})
			h := testgpu.AllocHost[float32](t, r.d, 32)
			clear(h.Slice())
			m := testgpu.LoadModule(t, r.d, []byte(".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 x) { ret; }"))
			r.gpu.RegisterKernel("k", cudatest.Kernel{Run: c.run})
			begin, err := h.Range(0, 16)
			require.NoError(t, err)
			require.NoError(t, testgpu.Kernel(t, m, "k").Launch(r.s1, cuda.Grid1D(1, 1), h))
			require.NoError(t, cuda.Copy(r.s2, testgpu.Range(t, r.x, 0, 16), begin))
			for i := range 16 {
				h.Slice()[16+i]++
			}
			require.Equal(t, c.race, len(r.races()) > 0)
		})
	}
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
