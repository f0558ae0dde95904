package rules_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/testgpu"
)

// world is streams, buffers and events, by number.
type world struct {
	t       *testing.T
	drv     *detecting
	d       *cuda.Device
	check   *cuda.Kernel
	streams map[int]*cuda.Stream
	buffers map[int]*cuda.Buffer[uint32]
	events  map[int]*cuda.Event
	wrong   *cuda.Buffer[uint32]
}

func newWorld(t *testing.T, drv *detecting) *world {
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	w := &world{t: t, drv: drv, d: d, check: testgpu.Kernel(t, testgpu.Kernels(t, d), "purecuda_check"),
		streams: map[int]*cuda.Stream{}, buffers: map[int]*cuda.Buffer[uint32]{}, events: map[int]*cuda.Event{}, wrong: testgpu.Alloc[uint32](t, d, 1)}
	for i := range 8 {
		w.buffers[i] = testgpu.Alloc[uint32](t, d, 16)
	}
	return w
}

func (w *world) stream(i int) *cuda.Stream {
	if w.streams[i] == nil {
		w.streams[i] = testgpu.NewStream(w.t, w.d, nil)
	}
	return w.streams[i]
}

func (w *world) event(i int) *cuda.Event {
	if w.events[i] == nil {
		w.events[i] = testgpu.NewEvent(w.t, nil)
	}
	return w.events[i]
}

func (w *world) record(event, stream int) {
	require.NoError(w.t, w.event(event).Record(w.stream(stream)))
}

func (w *world) wait(stream, event int) {
	require.NoError(w.t, w.event(event).Wait(w.stream(stream)))
}

// wants fails the test unless n races were reported since it was called last.
func (w *world) wants(n int) {
	w.t.Helper()
	found := w.drv.take()
	require.Len(w.t, found, n, "%v", found)
}

// read launches a kernel that reads a buffer.
func (w *world) read(stream, buffer int) error {
	return w.check.Launch(w.stream(stream), cuda.Grid1D(16, 16), cuda.Reads(w.buffers[buffer]), uint64(16), uint32(0), cuda.Atomics(w.wrong))
}

// write launches a kernel that writes it, for all that is said of it.
func (w *world) write(stream, buffer int) error {
	return w.check.Launch(w.stream(stream), cuda.Grid1D(16, 16), w.buffers[buffer], uint64(16), uint32(0), cuda.Atomics(w.wrong))
}

// The cases with which PyTorch tests its own detector (test/test_cuda_sanitizer.py), told anew.
func TestPyTorchsCases(t *testing.T) {
	cases := map[string]func(w *world, ok func(err error)){
		"two reads": func(w *world, ok func(error)) {
			ok(w.read(1, 1))
			ok(w.read(2, 1))
			w.wants(0)
		},
		"a write after a read": func(w *world, ok func(error)) {
			ok(w.read(1, 1))
			ok(w.write(2, 1))
			w.wants(1)
		},
		"with an event between them": func(w *world, ok func(error)) {
			ok(w.read(1, 1))
			w.record(1, 1)
			w.wait(2, 1)
			ok(w.write(2, 1))
			w.wants(0)
		},
		"all reads are compared with the last write, not the first alone": func(w *world, ok func(error)) {
			ok(w.write(1, 1))
			w.record(1, 1)
			w.wait(2, 1)
			ok(w.read(2, 1))
			w.wants(0)
			ok(w.read(3, 1))
			w.wants(1)
		},
		"two streams that wait for a third may read, and not write": func(w *world, ok func(error)) {
			ok(w.write(1, 1))
			w.record(1, 1)
			w.wait(2, 1)
			w.wait(3, 1)
			ok(w.read(2, 1))
			ok(w.read(3, 1))
			w.wants(0)
			ok(w.write(2, 1))
			w.wants(1)
		},
		"a chain of streams": func(w *world, ok func(error)) {
			ok(w.read(0, 1))
			for i := range 10 {
				w.record(i, i)
				w.wait(i+1, i)
			}
			ok(w.write(10, 1))
			w.wants(0)
		},
		"an event recorded before the last read": func(w *world, ok func(error)) {
			ok(w.read(1, 1))
			w.record(1, 1)
			ok(w.read(1, 1))
			w.wait(2, 1)
			ok(w.write(2, 1))
			w.wants(1)
		},
		"an event made anew": func(w *world, ok func(error)) {
			ok(w.read(1, 1))
			w.record(1, 1)
			ok(w.event(1).Close())
			delete(w.events, 1)
			w.wait(2, 1)
			ok(w.write(2, 1))
			w.wants(1)
		},
		"all reads are looked at, and one is not waited for": func(w *world, ok func(error)) {
			for i := 1; i < 10; i++ {
				ok(w.read(i, 1))
				w.record(i, i)
			}
			for i := 1; i < 9; i++ {
				w.wait(10, i)
			}
			ok(w.write(10, 1))
			w.wants(1)
		},
		"all reads are looked at, and waited for": func(w *world, ok func(error)) {
			for i := 1; i < 10; i++ {
				ok(w.read(i, 1))
				w.record(i, i)
			}
			for i := 1; i < 10; i++ {
				w.wait(10, i)
			}
			ok(w.write(10, 1))
			w.wants(0)
		},
		"two buffers": func(w *world, ok func(error)) {
			ok(w.read(1, 1))
			ok(w.write(1, 2))
			ok(w.write(2, 1))
			w.wants(1)
			ok(w.write(2, 2)) // of other lines
			w.wants(1)
		},
		"a wait adds to what a stream has waited for": func(w *world, ok func(error)) {
			ok(w.write(1, 1))
			ok(w.write(2, 2))
			w.record(1, 1)
			w.record(2, 2)
			w.wait(3, 1)
			w.record(3, 3) // comes after stream 1 alone
			w.wait(4, 2)
			w.wait(4, 3)
			ok(w.write(4, 1))
			ok(w.write(4, 2))
			w.wants(0)
		},
		"an event stands for its last record": func(w *world, ok func(error)) {
			ok(w.read(1, 1))
			w.record(1, 1)
			ok(w.read(2, 2))
			w.record(1, 2)
			w.wait(3, 1)
			ok(w.write(3, 1))
			w.wants(1)
		},
		"an event can be waited for more than once": func(w *world, ok func(error)) {
			ok(w.write(1, 1))
			w.record(1, 1)
			w.wait(2, 1)
			w.wait(3, 1)
			ok(w.read(2, 1))
			ok(w.read(3, 1))
			w.wants(0)
		},
		"the device is synchronized": func(w *world, ok func(error)) {
			for i := 1; i < 10; i++ {
				ok(w.read(i, 1))
			}
			ok(w.d.Synchronize())
			for i := 1; i < 3; i++ {
				ok(w.write(10, 1))
			}
			w.wants(0)
		},
		"and then it has new work": func(w *world, ok func(error)) {
			ok(w.read(1, 1))
			ok(w.d.Synchronize())
			ok(w.read(1, 1))
			ok(w.write(2, 1))
			w.wants(1)
		},
		"a new stream comes after what the host has waited for": func(w *world, ok func(error)) {
			ok(w.write(1, 1))
			ok(w.d.Synchronize())
			delete(w.streams, 2)
			ok(w.write(2, 1))
			w.wants(0)
		},
		"the host waits for a stream": func(w *world, ok func(error)) {
			ok(w.write(1, 1))
			ok(w.write(2, 2))
			ok(w.stream(1).Synchronize())
			ok(w.write(3, 1))
			w.wants(0)
		},
		"and not for another": func(w *world, ok func(error)) {
			ok(w.write(1, 1))
			ok(w.write(2, 2))
			w.record(9, 9)
			ok(w.event(9).Synchronize())
			ok(w.write(3, 2))
			w.wants(1)
		},
		"the host waits for an event": func(w *world, ok func(error)) {
			ok(w.write(1, 1))
			w.record(1, 1)
			ok(w.event(1).Synchronize())
			ok(w.write(2, 1))
			w.wants(0)
		},
	}
	withDetector(t, func(t *testing.T, open func(t *testing.T) *detecting) {
		for name, run := range cases {
			t.Run(name, func(t *testing.T) {
				run(newWorld(t, open(t)), func(err error) {
					t.Helper()
					require.NoError(t, err)
				})
			})
		}
	})
}
