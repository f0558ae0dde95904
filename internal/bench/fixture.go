package bench

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/kernels"
)

// Fixture has the objects of one goroutine that does rows. After [Fixture.Drain], and so
// before each sample, all events are recorded and done, and the streams idle.
type Fixture struct {
	Dev      *cuda.Device
	S, Other *cuda.Stream
	E, Timed *cuda.Event // Timed records time
	// Start and End have times too, and are recorded once.
	Start, End *cuda.Event
	// Ctx has S as its current stream.
	Ctx context.Context

	device, device1 *cuda.Buffer[uint32] // 64 KiB, and the first element
	host, host1     *cuda.HostBuffer[uint32]
	empty           *cuda.PreparedKernel
	graph           *cuda.GraphExec // of one empty kernel

	api    *driver.API
	native natives
	bare   [2]*cuda.Stream // those of native
	// words is what C reads and writes by address.
	words *words

	closers []func() error // in the order of making
}

// natives are the handles of a fixture, for calls by the bare functions.
type natives struct {
	context              driver.Context
	s, other             driver.Stream
	e, timed, start, end driver.Event
	spare                driver.Event // as WaitStream has one of its own
	kernel               driver.Func
	graph                driver.GraphExec
	pool                 driver.MemPool // 0 if the device has none
}

// words is memory that C may use: the heap does not move.
type words struct {
	out    uint64            // what a call returns through a pointer
	params [1]unsafe.Pointer // the arguments of a kernel that has none
}

// one is a launch of one thread.
var one = cuda.Grid1D(1, 1)

const (
	copied = 64 << 10 // bytes
	word   = 4
)

// NewFixture makes the objects on d, drained. They must be closed.
func NewFixture(d *cuda.Device) (*Fixture, error) {
	f := &Fixture{Dev: d, api: d.Driver().API(), words: new(words)}
	if err := f.make(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *Fixture) make() (err error) {
	// The methods and the bare functions have streams and events of their own: others may
	// capture a stream and record an event whose handle they know, so that the library has
	// to look at these more closely.
	for _, s := range []**cuda.Stream{&f.S, &f.Other, &f.bare[0], &f.bare[1]} {
		if *s, err = f.Dev.NewStream(nil); err != nil {
			return err
		}
		f.closers = append(f.closers, (*s).Close)
	}
	f.Ctx = cuda.WithStream(context.Background(), f.S)
	if err := f.events(); err != nil {
		return err
	}
	if err := f.memory(); err != nil {
		return err
	}
	if err := f.kernel(); err != nil {
		return err
	}
	n := &f.native
	n.s, n.other = f.bare[0].Handle(), f.bare[1].Handle()
	c, r := f.api.StreamGetCtx(n.s)
	n.context = c
	if r != driver.Success {
		return r
	}
	return f.Drain(context.Background())
}

// events makes the events and records them: before that they have no handle.
func (f *Fixture) events() (err error) {
	for _, e := range []struct {
		event  **cuda.Event
		native *driver.Event
		timing bool
	}{
		{&f.E, &f.native.e, false}, {new(*cuda.Event), &f.native.spare, false},
		{&f.Timed, &f.native.timed, true}, {&f.Start, &f.native.start, true}, {&f.End, &f.native.end, true},
	} {
		if *e.event, err = f.event(e.timing); err != nil {
			return err
		}
		bare, err := f.event(e.timing)
		if err != nil {
			return err
		}
		*e.native = bare.Handle()
	}
	return nil
}

func (f *Fixture) event(timing bool) (*cuda.Event, error) {
	e := cuda.NewEvent(&cuda.EventOptions{Timing: timing})
	f.closers = append(f.closers, e.Close)
	return e, e.Record(f.S)
}

func (f *Fixture) memory() (err error) {
	if f.device, err = cuda.Alloc[uint32](f.Dev, copied/word); err != nil {
		return err
	}
	f.closers = append(f.closers, f.device.Close)
	if f.host, err = cuda.AllocHost[uint32](f.Dev, copied/word, nil); err != nil {
		return err
	}
	f.closers = append(f.closers, f.host.Close)
	if f.device1, err = f.device.Range(0, 1); err != nil {
		return err
	}
	if f.host1, err = f.host.Range(0, 1); err != nil {
		return err
	}
	pool, err := f.Dev.MemoryPool()
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err == nil {
		f.native.pool = pool.Handle()
	}
	return err
}

func (f *Fixture) kernel() error {
	m, err := f.Dev.LoadModule([]byte(kernels.PTX))
	if err != nil {
		return err
	}
	f.closers = append(f.closers, m.Close)
	k, err := m.Kernel("purecuda_empty")
	if err != nil {
		return err
	}
	f.native.kernel = k.Handle()
	if f.empty, err = k.Prepare(); err != nil {
		return err
	}
	g, err := f.S.Capture(func() error { return f.empty.Launch(f.S, one) })
	if err != nil {
		return err
	}
	f.graph, err = g.Instantiate()
	if err != nil {
		return errors.Join(err, g.Close())
	}
	f.closers = append(f.closers, f.graph.Close)
	f.native.graph = f.graph.Handle()
	return g.Close()
}

// Bare times do as [Timed] does, with the device's context current on the calling
// thread. To make it so takes no part of the time.
func (f *Fixture) Bare(do func(n int) error) func(n int) (time.Duration, error) {
	timed := Timed(do)
	return func(n int) (took time.Duration, err error) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if r := f.api.CtxPushCurrent(f.native.context); r != driver.Success {
			return 0, r
		}
		took, err = timed(n)
		if _, r := f.api.CtxPopCurrent(); err == nil {
			err = r.Err()
		}
		return took, err
	}
}

// Context returns the context that the bare functions want to be current.
func (f *Fixture) Context() driver.Context { return f.native.context }

// Drain waits until the device has done what samples have enqueued, and leaves E as
// each sample finds it.
func (f *Fixture) Drain(ctx context.Context) error {
	if err := f.E.Record(f.S); err != nil {
		return err
	}
	for _, s := range []*cuda.Stream{f.S, f.Other, f.bare[0], f.bare[1], f.Dev.DefaultStream()} {
		if err := s.SynchronizeContext(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Close closes all that NewFixture made.
func (f *Fixture) Close() error {
	var errs []error
	for _, c := range slices.Backward(f.closers) {
		errs = append(errs, c())
	}
	f.closers = nil
	return errors.Join(errs...)
}
