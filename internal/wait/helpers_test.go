package wait

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stream is a queue whose points are done in order.
type stream struct {
	done  atomic.Uint64 // up to this number
	polls atomic.Int64
}

// mark is a point of a stream.
type mark struct {
	s           *stream
	first, last uint64
	polls       atomic.Int64
}

func (s *stream) at(n uint64) *mark { return &mark{s: s, first: n, last: n} }

func (m *mark) Poll() (bool, error) {
	m.polls.Add(1)
	m.s.polls.Add(1)
	return m.s.done.Load() >= m.last, nil
}

func (m *mark) Place() (any, uint64, uint64) { return m.s, m.first, m.last }

// free is a point that does what a test says.
type free struct {
	poll  func() (bool, error)
	place func() (any, uint64, uint64) // nil: not known
}

func (f *free) Poll() (bool, error) { return f.poll() }

func (f *free) Place() (any, uint64, uint64) {
	if f.place == nil {
		return nil, 0, 0
	}
	return f.place()
}

// flag is a point by itself.
type flag struct {
	done  atomic.Bool
	polls atomic.Int64
}

func (f *flag) Poll() (bool, error)          { f.polls.Add(1); return f.done.Load(), nil }
func (f *flag) Place() (any, uint64, uint64) { return f, 1, 1 }

func becomes(t testing.TB, f func() bool) {
	t.Helper()
	for began := time.Now(); !f(); time.Sleep(50 * time.Microsecond) {
		if time.Since(began) > 10*time.Second {
			require.FailNow(t, "it does not become so")
		}
	}
}

// parked waits until so many wait.
func parked(t testing.TB, p *Poller, n int) {
	t.Helper()
	becomes(t, func() bool { return p.Stats().Waiting == n })
}

// rest checks that nobody waits and that the figures add up.
func rest(t testing.TB, p *Poller) {
	t.Helper()
	becomes(t, func() bool { s := p.Stats(); return s.Waiting == 0 && s.Pollers == 0 })
	s := p.Stats()
	require.Equal(t, s.Parked, s.Woken+s.Cancelled)
	for i := range p.loops {
		l := &p.loops[i]
		l.mu.Lock()
		require.Empty(t, l.entries)
		require.Empty(t, l.queues)
		require.Empty(t, l.list)
		l.mu.Unlock()
	}
}

// goes waits until no more goroutines run than before.
func goes(t testing.TB) (check func()) {
	before := runtime.NumGoroutine()
	return func() {
		t.Helper()
		becomes(t, func() bool { return runtime.NumGoroutine() <= before })
	}
}

func started(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// long is how long a wait that must end is waited for: 20 s, or the seconds in the
// environment.
var long = func() time.Duration {
	if n, err := strconv.Atoi(os.Getenv("PURECUDA_TEST_PATIENCE")); err == nil {
		return time.Duration(n) * time.Second
	}
	return 20 * time.Second
}()

func get(t testing.TB, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(long):
		require.FailNow(t, "the wait does not end")
		return nil
	}
}

func waiting(t testing.TB, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		require.FailNow(t, "the wait has ended", "%v", err)
	case <-time.After(3 * time.Millisecond):
	}
}

func notified(p *Poller, pt Point, o *Owner) <-chan error {
	done := make(chan error, 2)
	p.Notify(pt, o, func(err error) { done <- err })
	return done
}

func start(p *Poller, ctx context.Context, pt Point, o *Owner) <-chan error {
	return started(func() error { return p.Wait(ctx, pt, o, false) })
}

var background = context.Background()

// succeeds is for goroutines that a test has started, which must not end it.
func succeeds(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}
