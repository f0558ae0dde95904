package testgpu

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
)

// Hook is called inside a driver function by a modified table. It does nothing until a test
// sets what it does the next time.
type Hook struct{ f atomic.Pointer[func()] }

// Next sets what the next call of [Hook.Run] does; later ones do nothing.
func (h *Hook) Next(f func()) { h.f.Store(&f) }

// HoldNext makes the next call of [Hook.Run] block until leave is called, and closes in when
// it has come.
func (h *Hook) HoldNext() (in <-chan struct{}, leave func()) {
	entered, left := make(chan struct{}), make(chan struct{})
	h.Next(func() { close(entered); <-left })
	return entered, sync.OnceFunc(func() { close(left) })
}

// Run does what [Hook.Next] has set.
func (h *Hook) Run() {
	if f := h.f.Swap(nil); f != nil {
		(*f)()
	}
}

// Gate makes calls of a driver function block while it is closed.
type Gate struct {
	shut atomic.Pointer[chan struct{}]
	// Entered receives from each call that blocks.
	Entered chan struct{}
}

// NewGate returns an open gate.
func NewGate() *Gate { return &Gate{Entered: make(chan struct{}, 10)} }

// Pass returns when the gate is open.
func (g *Gate) Pass() {
	if c := g.shut.Load(); c != nil {
		g.Entered <- struct{}{}
		<-*c
	}
}

// Close makes calls block until open is called, which may be called again.
func (g *Gate) Close() (open func()) {
	c := make(chan struct{})
	g.shut.Store(&c)
	return sync.OnceFunc(func() {
		g.shut.Store(nil)
		close(c)
	})
}

// Valve stops queries of events on their way to the driver, or answers on their way back.
type Valve struct {
	mu     sync.Mutex
	shut   chan struct{} // nil while it is open
	of     func(e driver.Event) bool
	answer driver.Result // stops answers of this kind instead
	// Stopped counts the queries and answers that were stopped since the last Close.
	Stopped atomic.Int32
}

// Install puts the valve in a table.
func (v *Valve) Install(api *driver.API) {
	bare := api.EventQuery
	api.EventQuery = func(e driver.Event) driver.Result {
		v.mu.Lock()
		shut, of, answer := v.shut, v.of, v.answer
		v.mu.Unlock()
		if shut == nil || !of(e) {
			return bare(e)
		}
		r := driver.ErrorNotReady
		if answer >= 0 {
			if r = bare(e); r != answer {
				return r
			}
		}
		v.Stopped.Add(1)
		<-shut
		if answer >= 0 {
			return r
		}
		return bare(e)
	}
}

// Queries makes [Valve.Close] stop queries, and not answers.
const Queries driver.Result = -1

// Close stops what concerns the events that of picks: queries about them, or the answers
// that are what. The end of the test opens the valve.
func (v *Valve) Close(t testing.TB, what driver.Result, of func(driver.Event) bool) (open func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	shut := make(chan struct{})
	v.shut, v.of, v.answer = shut, of, what
	v.Stopped.Store(0)
	open = sync.OnceFunc(func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.shut = nil
		close(shut)
	})
	ReleaseAtEnd(t, open)
	return open
}

// AnyEvent picks every event.
func AnyEvent(driver.Event) bool { return true }

// NativeEvent returns the handle of e, and does not make others share it as Handle does.
func NativeEvent(t testing.TB, e *cuda.Event) (h driver.Event) {
	t.Helper()
	_, hex, _ := strings.Cut(e.String(), ", ")
	_, err := fmt.Sscanf(hex, "%v)", (*uintptr)(&h))
	require.NoError(t, err)
	return h
}
