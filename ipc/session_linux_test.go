package ipc

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/internal/testgpu"
)

func TestOfferAndAttach(t *testing.T) {
	a, b := pair(t)
	x, e := a.memory(t, 1, 2, 3), a.event(t)
	require.NoError(t, a.Offer("weights", x))
	require.NoError(t, a.Offer("ready", e))
	part, err := x.Range(1, 3)
	require.NoError(t, err)
	require.NoError(t, a.Offer("a part", part))

	y := b.attach(t, "weights")
	require.Equal(t, []float32{1, 2, 3}, b.read(t, y))
	require.Equal(t, []float32{2, 3}, b.read(t, b.attach(t, "a part")))
	f, err := b.Event(t.Context(), b.drv, "ready")
	require.NoError(t, err)
	require.NoError(t, cuda.CopyFromSlice(t.Context(), b.stream, y, []float32{4, 5, 6}))
	require.NoError(t, f.Record(b.stream))
	require.NoError(t, e.Synchronize())
	require.Equal(t, []float32{4, 5, 6}, a.read(t, x))

	// Both ways.
	z := b.memory(t, 7)
	require.NoError(t, b.Offer("weights", z))
	require.NoError(t, z.Close())
	require.Equal(t, []float32{7}, a.read(t, a.attach(t, "weights")))

	require.NoError(t, x.Close())
	require.NoError(t, e.Close())
}

func TestAttachWaitsForTheOffer(t *testing.T) {
	a, b := pair(t)
	result := make(chan *cuda.Buffer[float32], 1)
	go func() {
		y, _ := Buffer[float32](context.Background(), b.Session, b.drv, "late")
		result <- y
	}()
	testgpu.NotReady(t, result)
	x := a.memory(t, 1)
	require.NoError(t, a.Offer("other", x))
	testgpu.NotReady(t, result)
	require.NoError(t, a.Offer("late", x))
	require.Equal(t, []float32{1}, b.read(t, testgpu.Receive(t, result)))
	require.NoError(t, x.Close())

	_, err := b.Event(within(t, testgpu.Soon), b.drv, "never")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, `"never"`)
	require.ErrorContains(t, err, "has not offered it")
}

func TestOfferErrors(t *testing.T) {
	a, b := pair(t)
	x := a.memory(t, 1)
	defer x.Close()
	var nothing *cuda.Event
	plain := cuda.NewEvent(&cuda.EventOptions{Device: a.dev})
	require.NoError(t, plain.Record(a.stream))
	defer plain.Close()
	require.NoError(t, a.Offer("x", x))
	for _, test := range []struct {
		name string
		x    Shared
		is   error
		says string
	}{
		{"", x, cuda.ErrInvalid, "1 to 255 bytes"},
		{strings.Repeat("n", 256), x, cuda.ErrInvalid, "this has 256"},
		{"a\nb", x, cuda.ErrInvalid, "printable"},
		{"a\xff", x, cuda.ErrInvalid, "printable"},
		{"nil", nil, cuda.ErrInvalid, "is nil"},
		{"nothing", nothing, cuda.ErrInvalid, "nil"},
		{"plain", plain, cuda.ErrNotInterprocess, "Interprocess"},
		{"x", x, cuda.ErrInvalid, "offered already"},
		{"ring ", x, cuda.ErrInvalid, "for rings"},
		{"ring 1: r", x, cuda.ErrInvalid, "for rings"},
		{"foreign", b.memoryOf(t, a), cuda.ErrInvalid, "only that can offer it"},
	} {
		err := a.Offer(test.name, test.x)
		require.ErrorIs(t, err, test.is, test.name)
		require.ErrorContains(t, err, test.says)
		require.ErrorContains(t, err, "session offer")
	}
	require.NoError(t, a.Offer(strings.Repeat("n", 255), x))
	require.NoError(t, a.Offer("rings", x))
	require.NoError(t, a.offerNamed("ring 1: r", x), "a ring itself")
	require.NoError(t, a.Offer("Gewichte für Größe 世界", x))

	_, err := a.Event(t.Context(), nil, "x")
	require.ErrorIs(t, err, cuda.ErrInvalid)
	_, err = b.Event(t.Context(), b.drv, "a\tb")
	require.ErrorIs(t, err, cuda.ErrInvalid)
	_, err = b.Event(t.Context(), b.drv, "x")
	require.ErrorIs(t, err, cuda.ErrInvalid, "it is memory")
	require.ErrorContains(t, err, "memory")
	require.Zero(t, b.attachedNow())
	require.ErrorIs(t, a.Withdraw(t.Context(), "what"), cuda.ErrInvalid)
	require.True(t, isClosed(b.Withdrawn("what")))
}

// memoryOf offers memory from e to another end, which attaches it.
func (e *end) memoryOf(t *testing.T, other *end) *cuda.Buffer[float32] {
	x := e.memory(t, 1)
	require.NoError(t, e.Offer("lent", x))
	require.NoError(t, x.Close())
	return other.attach(t, "lent")
}

func (s *Session) attachedNow() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attached
}

func TestManyOffers(t *testing.T) {
	a, b := pair(t)
	x := a.memory(t, 1)
	defer x.Close()
	for i := range offerLimit {
		require.NoError(t, a.Offer(fmt.Sprint(i), x))
	}
	require.ErrorIs(t, a.Offer("one more", x), cuda.ErrInvalid)
	b.attach(t, fmt.Sprint(offerLimit-1))
	require.NoError(t, a.Withdraw(t.Context(), "7"))
	require.NoError(t, a.Offer("one more", x))
	b.attach(t, "one more")
	require.NoError(t, b.Err())
}

// What was attached several times is released when all are closed.
func TestAttachTwice(t *testing.T) {
	a, b := pair(t)
	x := a.memory(t, 1)
	require.NoError(t, a.Offer("x", x))
	require.NoError(t, x.Close())
	one, two := b.attach(t, "x"), b.attach(t, "x")
	withdrawn := testgpu.Go(func() error { return a.Withdraw(context.Background(), "x") })
	testgpu.Receive(t, b.Withdrawn("x"))
	require.NoError(t, one.Close())
	testgpu.NotReady(t, withdrawn)
	require.Equal(t, []float32{1}, b.read(t, two))
	require.NoError(t, two.Close())
	require.NoError(t, testgpu.Receive(t, withdrawn))
	require.Zero(t, a.live(), "it is freed when Withdraw returns")
}

// What was closed is forgotten, even while the same is attached once more.
func TestClosedAttachmentsAreForgotten(t *testing.T) {
	a, b := pair(t)
	x, e := a.memory(t, 1), a.event(t)
	require.NoError(t, a.Offer("x", x))
	require.NoError(t, a.Offer("e", e))
	require.NoError(t, x.Close())
	require.NoError(t, e.Close())
	b.attach(t, "x")
	stays, err := b.Event(t.Context(), b.drv, "e")
	require.NoError(t, err)
	for range 100 {
		require.NoError(t, b.attach(t, "x").Close())
		f, err := b.Event(t.Context(), b.drv, "e")
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	b.mu.Lock()
	kept := len(b.attachments)
	b.mu.Unlock()
	require.Equal(t, 2, kept)
	require.Equal(t, 2, b.attachedNow())
	require.NoError(t, stays.Record(b.stream), "it is open still")
}

// A nil session or listener is a mistake of the user's, and no panic.
func TestNilSession(t *testing.T) {
	var s *Session
	drv := newEnd(t, cudatest.New(cudatest.Config{})).drv
	_, err := Buffer[float32](t.Context(), s, drv, "x")
	require.ErrorIs(t, err, cuda.ErrInvalid)
	_, err = s.Event(t.Context(), drv, "x")
	require.ErrorIs(t, err, cuda.ErrInvalid)
	require.ErrorIs(t, s.Offer("x", nil), cuda.ErrInvalid)
	require.ErrorIs(t, s.Withdraw(t.Context(), "x"), cuda.ErrInvalid)
	require.True(t, isClosed(s.Withdrawn("x")))
	var l *Listener
	_, err = l.Accept(t.Context())
	require.ErrorIs(t, err, cuda.ErrInvalid)
	require.NoError(t, l.Close())
}

// A panic on the way to an attachment leaves nothing that the exporter would wait for.
func TestPanicWhileAttaching(t *testing.T) {
	a, b := pair(t)
	x := a.memory(t, 1)
	require.NoError(t, a.Offer("x", x))
	require.NoError(t, x.Close())
	require.PanicsWithValue(t, "below", func() {
		_, _ = attach(t.Context(), b.Session, "event", b.drv, "x", func(Token, *ImportOptions) (*cuda.Event, error) { panic("below") })
	})
	require.Zero(t, b.attachedNow())
	require.Equal(t, []float32{1}, b.read(t, b.attach(t, "x")))
	require.NoError(t, b.Session.Close())
	require.NoError(t, a.Shutdown(within(t, 5*time.Second)))
}

// Every order in which the two ends can release something.
func TestOrdersOfClosing(t *testing.T) {
	type state struct {
		a, b *end
		x    *cuda.Buffer[float32]
		y    *cuda.Buffer[float32]
	}
	steps := map[string]func(t *testing.T, s *state){
		"exporter's buffer":  func(t *testing.T, s *state) { require.NoError(t, s.x.Close()) },
		"importer's buffer":  func(t *testing.T, s *state) { require.NoError(t, s.y.Close()) },
		"exporter's session": func(t *testing.T, s *state) { require.NoError(t, s.a.Session.Close()) },
		"importer's session": func(t *testing.T, s *state) { require.NoError(t, s.b.Session.Close()) },
	}
	var names []string
	for name := range steps {
		names = append(names, name)
	}
	permute(names, func(order []string) {
		t.Run(strings.Join(order, ", "), func(t *testing.T) {
			a, b := pair(t)
			s := &state{a: a, b: b, x: a.memory(t, 1)}
			require.NoError(t, a.Offer("x", s.x))
			s.y = b.attach(t, "x")
			lives := true
			for i, name := range order {
				steps[name](t, s)
				lives = lives && !strings.HasPrefix(name, "importer's")
				if lives && i < 3 {
					require.Equal(t, []float32{1}, b.read(t, s.y), "after %s", name)
				}
			}
			testgpu.WaitUntil(t, func() bool { return a.live() == 0 && b.live() == 0 })
			require.NoError(t, a.Shutdown(t.Context()))
			require.NoError(t, b.Shutdown(t.Context()))
		})
	})
	t.Run("both at once", func(t *testing.T) {
		for range 20 {
			a, b := pair(t)
			x, y := a.memory(t, 1), b.memory(t, 2)
			require.NoError(t, a.Offer("x", x))
			b.attach(t, "x")
			require.NoError(t, b.Offer("y", y))
			a.attach(t, "y")
			require.NoError(t, x.Close())
			require.NoError(t, y.Close())
			one, other := testgpu.Go(func() error { return a.Shutdown(context.Background()) }), testgpu.Go(func() error { return b.Shutdown(context.Background()) })
			require.NoError(t, testgpu.Receive(t, one))
			require.NoError(t, testgpu.Receive(t, other))
		}
	})
}

func permute(s []string, f func([]string)) {
	var rest func(n int)
	rest = func(n int) {
		if n == len(s) {
			f(s)
			return
		}
		for i := n; i < len(s); i++ {
			s[n], s[i] = s[i], s[n]
			rest(n + 1)
			s[n], s[i] = s[i], s[n]
		}
	}
	rest(0)
}
