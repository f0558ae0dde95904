package stress_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/testgpu"
)

// turn is a test in which a call is held up at the driver's door and overtaken.
type turn struct {
	*held
	t *testing.T
}

// behind begins a call, does the rest while that is held up at a function of the driver, and
// then lets it go on.
func (x *turn) behind(function string, after bool, call func() error, meanwhile func()) {
	x.t.Helper()
	arrived, open := x.door(function, after)
	defer open()
	result := x.begun(call)
	testgpu.Receive(x.t, arrived)
	meanwhile()
	require.Empty(x.t, result)
	open()
	x.ended(result, nil)
}

func (x *turn) begun(f func() error) chan error {
	result := make(chan error, 1)
	go func() { result <- f() }()
	return result
}

// ended wants a call to end like that.
func (x *turn) ended(result <-chan error, want error) {
	x.t.Helper()
	require.ErrorIs(x.t, testgpu.Receive(x.t, result), want)
}

func (x *turn) no(err error) {
	x.t.Helper()
	require.NoError(x.t, err)
}

func (x *turn) stream() *cuda.Stream { return x.held.stream(x.t) }

func (x *turn) event(opts *cuda.EventOptions) *cuda.Event { return testgpu.NewEvent(x.t, opts) }

// done asks whether e or s is done.
func (x *turn) done(q interface{ Query() (bool, error) }) bool { return testgpu.Query(x.t, q) }

// native is the handle of e in words: Handle would have the library treat it as others' too.
func native(e *cuda.Event) string {
	s := e.String()
	return s[strings.LastIndex(s, " "):]
}

// reuse records events on idle streams until one has the native event of that name, which
// must have been given back.
func (x *turn) reuse(name string) *cuda.Event {
	x.t.Helper()
	s := x.stream()
	for range 8 {
		e := x.event(nil)
		x.no(e.Record(s))
		if native(e) == name {
			return e
		}
	}
	x.t.Fatal("nobody gets the native event", name)
	return nil
}

// memory is a buffer of home that user may read.
func (x *turn) memory(home, user *cuda.Stream) *cuda.Buffer[uint32] {
	m, err := cuda.AllocAsync[uint32](home, 64)
	x.no(err)
	x.no(user.WaitStream(home))
	return m
}

// kept closes m, which is used still, and wants its bytes not to be given to others.
func (x *turn) kept(home *cuda.Stream, m *cuda.Buffer[uint32], why string) {
	x.t.Helper()
	at, buffers := m.Pointer(), x.Driver().Stats().Buffers
	x.no(m.Close())
	require.Equal(x.t, buffers, x.Driver().Stats().Buffers, why)
	n, err := cuda.AllocAsync[uint32](home, 64)
	x.no(err)
	require.NotEqual(x.t, at, n.Pointer(), why)
	x.no(n.Close())
}

// parked waits until so many waits are left to the poller.
func (x *turn) parked(n int) { testgpu.Parked(x.t, x.Driver(), n) }

// notEnqueued wants a use of memory that is held up before its driver call not to be covered
// by a wait that comes meanwhile.
func (x *turn) notEnqueued(function string, use func(user *cuda.Stream, m *cuda.Buffer[uint32]) error) {
	home, user, e := x.stream(), x.stream(), x.event(nil)
	m := x.memory(home, user)
	release := func() {}
	defer func() { release() }()
	x.behind(function, false, func() error { return use(user, m) }, func() {
		x.no(errors.Join(e.Record(user), e.Wait(home)))
		release = x.busy(x.t, user)
	})
	x.kept(home, m, "the use is not done")
}

func (x *turn) kernel(name string) *cuda.Kernel {
	return testgpu.Kernel(x.t, x.module, name)
}

func TestHeldTurns(t *testing.T) {
	for _, turns := range []map[string]func(x *turn){eventTurns, memoryTurns, captureTurns} {
		for name, f := range turns {
			t.Run(name, func(t *testing.T) {
				onHeld(t, func(t *testing.T, b *held) { f(&turn{held: b, t: t}) })
			})
		}
	}
}
