package ipc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/testgpu"
)

// mostDelay is how long a survivor may take to notice.
const mostDelay = 100 * time.Millisecond

// survivor is the process that lives through all rounds.
type survivor struct {
	drv   *cuda.Driver
	dev   *cuda.Device
	from  *cuda.Buffer[uint32]
	words []uint32
	// delays are the times from each kill to the end of each wait.
	delays map[string][]time.Duration
}

func newSurvivor(t testing.TB, drv *cuda.Driver, dev *cuda.Device) *survivor {
	v := &survivor{drv: drv, dev: dev, words: wordsOf(killLength), delays: map[string][]time.Duration{}}
	var err error
	v.from, err = cuda.Alloc[uint32](dev, len(v.words))
	require.NoError(t, err)
	s, err := dev.NewStream(nil)
	require.NoError(t, err)
	require.NoError(t, cuda.CopyFromSlice(t.Context(), s, v.from, v.words))
	require.NoError(t, s.Synchronize())
	require.NoError(t, s.Close())
	return v
}

// ended is how a wait ended, and when.
type ended struct {
	what string
	err  error
	at   time.Time
}

// round lives through the death of a session's other end, which plays a role.
func (v *survivor) round(t testing.TB, role string, session *Session, kill func() time.Time) {
	before_ := v.drv.Stats()
	ctx := within(t, 30*time.Second)
	who, when, _ := strings.Cut(role, " ")
	stream, err := v.dev.NewStream(nil)
	require.NoError(t, err)
	other, err := v.dev.NewStream(nil)
	require.NoError(t, err)
	waits := make(chan ended, 8)
	count := 0
	wait := func(what string, f func() error) {
		count++
		go func() {
			err := f()
			waits <- ended{what, err, time.Now()}
		}()
	}

	var ring interface{ Close() error }
	var x *copier
	if who == "producer" {
		c, err := NewConsumer[uint32](ctx, session, v.drv, "ring")
		require.NoError(t, err)
		x, err = newCopier(c, stream, v.words)
		require.NoError(t, err)
		ring = c
		wait("ring", func() error {
			for {
				err := x.take(ctx)
				for err == nil && len(x.pending) > killSlots/2 {
					err = x.check(ctx)
				}
				if err != nil {
					return err
				}
			}
		})
	} else {
		p, err := NewProducer[uint32](ctx, session, v.dev, "ring", killSlots, killLength)
		require.NoError(t, err)
		ring = p
		wait("ring", func() error {
			for {
				if err := sendNext(ctx, p, stream, v.from, func() error { return nil }); err != nil {
					return err
				}
			}
		})
		wait("flush", func() error {
			for ctx.Err() == nil {
				halted := context.Cause(p.ring.halt)
				if err := p.Flush(ctx); err != nil {
					return err
				}
				if halted != nil { // and what was sent before was used all the same
					return halted
				}
				time.Sleep(100 * time.Microsecond) // nothing is sent yet, perhaps
			}
			return ctx.Err()
		})
	}
	pending, err := session.Event(ctx, v.drv, "pending")
	require.NoError(t, err)
	wait("event", func() error { return pending.SynchronizeContext(ctx) })
	wait("wait alive", func() error { return pending.WaitAlive(ctx, other) })
	ready, err := session.Event(ctx, v.drv, "ready")
	require.NoError(t, err)
	require.NoError(t, ready.Close())
	time.Sleep(5 * time.Millisecond)

	killed := kill()
	for range count {
		e := testgpu.Receive(t, waits)
		if when == after && (e.what == "event" || e.what == "wait alive") {
			require.NoError(t, e.err, "the event was done")
			continue
		}
		require.ErrorIs(t, e.err, cuda.ErrPeerGone, e.what)
		delay := e.at.Sub(killed)
		require.Positive(t, delay, "%s ended before the kill", e.what)
		v.delays[e.what] = append(v.delays[e.what], delay)
	}
	for _, f := range []func() error{stream.Synchronize, other.Synchronize, v.dev.Synchronize} {
		require.NoError(t, finishes(t, f))
	}
	if x != nil {
		v.confirmRest(ctx, t, x)
		switch when {
		case before:
			require.Zero(t, x.good)
		case after:
			require.Equal(t, finished, x.good)
		}
		require.NoError(t, x.close())
	}
	for _, f := range []func() error{ring.Close, pending.Close, session.Close, stream.Close, other.Close} {
		require.NoError(t, finishes(t, f))
	}
	testgpu.WaitUntil(t, func() bool { return v.drv.Stats() == before_ })
	v.delays["all given back"] = append(v.delays["all given back"], time.Since(killed))
}

// confirmRest asks for what was taken and not confirmed yet: each batch is good, and
// right, or lost.
func (v *survivor) confirmRest(ctx context.Context, t testing.TB, x *copier) {
	for len(x.pending) > 0 {
		if err := x.check(ctx); err != nil {
			require.ErrorIs(t, err, cuda.ErrPeerGone)
		}
	}
}

func (v *survivor) report(t testing.TB) {
	for what, all := range v.delays {
		slices.Sort(all)
		t.Logf("from the kill to the end of %-16s half within %6.1f ms, all of %d within %6.1f ms", `"`+what+`":`,
			all[len(all)/2].Seconds()*1e3, len(all), all[len(all)-1].Seconds()*1e3)
	}
	for what, all := range v.delays {
		if what != "all given back" {
			require.LessOrEqual(t, all[len(all)-1], mostDelay, what)
		}
	}
}

func roles() (all []string) {
	for _, who := range []string{"producer", "consumer"} {
		for _, when := range []string{before, atWork, after} {
			all = append(all, who+" "+when)
		}
	}
	return all
}

// TestRingKillReal kills the process at the other end of a ring, again and again.
// PURECUDA_TEST_ROUNDS says how often; by default a hundred times, or as often as goes
// in 100 seconds.
func TestRingKillReal(t *testing.T) {
	drv := testgpu.RealDriver(t)
	dev, err := drv.OpenDevice(0)
	require.NoError(t, err)
	rounds, limit := 100, 100*time.Second
	if text := os.Getenv("PURECUDA_TEST_ROUNDS"); text != "" {
		rounds, err = strconv.Atoi(text)
		require.NoError(t, err)
		limit = 24 * time.Hour
	}
	v := newSurvivor(t, drv, dev)
	all := roles()
	began, done := time.Now(), 0
	for ; done < rounds && time.Since(began) < limit; done++ {
		role := all[done%len(all)]
		child := startRingChild(t, role)
		var waited <-chan error
		v.round(t, role, child.session, func() time.Time {
			now := time.Now()
			require.NoError(t, child.cmd.Process.Kill())
			waited = testgpu.Go(child.cmd.Wait)
			return now
		})
		require.Error(t, testgpu.Receive(t, waited))
		require.Empty(t, child.said.String(), "the child was killed before it could fail")
		if t.Failed() {
			t.Fatalf("round %d, a %s", done, role)
		}
	}
	t.Logf("%d rounds in %v", done, time.Since(began).Round(time.Millisecond))
	require.NoError(t, v.from.Close())
	v.report(t)
}

// The same between simulated processes, so that the test itself is tested. Here a
// death has two parts as well.
func TestRingKillSimulated(t *testing.T) {
	for _, role := range roles() {
		t.Run(role, func(t *testing.T) {
			d := newDuo(t)
			v := newSurvivor(t, d.a.drv, d.a.dev)
			has := make(chan io.Closer, 1)
			died := testgpu.Go(func() error {
				return victim(context.Background(), role, d.b.drv, d.b.dev, d.b.Session, func(ring io.Closer) { has <- ring })
			})
			v.round(t, role, d.a.Session, func() time.Time {
				d.dead[d.b] = true
				now := time.Now()
				d.b.sim.BeginKill()
				time.AfterFunc(30*time.Millisecond, d.b.sim.Kill)
				return now
			})
			err := testgpu.Receive(t, died)
			if err != nil {
				require.False(t, errors.Is(err, context.DeadlineExceeded), fmt.Sprint(err))
			}
			require.NoError(t, v.from.Close())
			d.b.sim.Kill()
			_ = (<-has).Close() // the end of its goroutines
		})
	}
}
