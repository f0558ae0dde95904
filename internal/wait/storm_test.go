package wait

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Goroutines wait in all ways, cancel and end at random, while streams go on at random. No
// wait ends before its work, none stays.
func TestStorm(t *testing.T) {
	check := goes(t)
	pollers := make([]Poller, 2)
	streams := make([]stream, 6)
	var stop atomic.Bool
	var device, crowd sync.WaitGroup
	recorded := make([]atomic.Uint64, len(streams))
	device.Go(func() {
		for !stop.Load() {
			i := rand.IntN(len(streams))
			if to := recorded[i].Load(); to > 0 {
				streams[i].done.Store(max(streams[i].done.Load(), to-rand.Uint64N(min(to, 20))))
			}
			time.Sleep(rand.N(100 * time.Microsecond))
		}
		for i := range streams {
			streams[i].done.Store(1 << 62)
		}
	})
	var calls, returned atomic.Int64
	rounds := 150
	if testing.Short() {
		rounds = 50
	}
	point := func(i int) *mark {
		n := recorded[i].Add(1)
		m := streams[i].at(n)
		m.first -= rand.Uint64N(min(n, 4))
		return m
	}
	for range 100 {
		crowd.Go(func() {
			for range rounds {
				i := rand.IntN(len(streams))
				p, m := &pollers[i%2], point(i)
				var pt Point = m
				if rand.IntN(8) == 0 {
					pt = &free{poll: m.Poll}
				}
				var o *Owner
				if rand.IntN(2) == 0 {
					o = new(Owner)
				}
				ctx, cancel := background, func() {}
				if rand.IntN(2) == 0 {
					ctx, cancel = context.WithTimeout(background, rand.N(300*time.Microsecond))
				}
				ending := rand.IntN(3) == 0 && o != nil
				var closer sync.WaitGroup
				if ending {
					closer.Go(func() {
						time.Sleep(rand.N(200 * time.Microsecond))
						o.End(p)
					})
				}
				correct := func(err error) {
					switch {
					case err == nil:
						if streams[i].done.Load() < m.last {
							t.Errorf("a wait ended too early: %T %d..%d, done up to %d", pt, m.first, m.last, streams[i].done.Load())
						}
					case errors.Is(err, ErrCancelled):
						if ctx.Err() == nil {
							t.Error("not cancelled")
						}
					case errors.Is(err, ErrEnded):
						if !o.Ended() {
							t.Error("not ended")
						}
					default:
						t.Error(err)
					}
				}
				switch rand.IntN(6) {
				case 0:
					calls.Add(1)
					p.Notify(pt, o, func(err error) { correct(err); returned.Add(1) })
				case 1, 2:
					k := rand.IntN(len(streams))
					other := point(k)
					ps := []Pending{{p, pt, o, true}, {&pollers[k%2], other, nil, false}, {}}
					if rand.IntN(2) == 0 {
						_, err := All(ctx, ps)
						correct(err)
						if err == nil && streams[k].done.Load() < other.last {
							t.Error("too early")
						}
						break
					}
					switch n, err := Any(ctx, ps[:2]); {
					case n == 1:
						if err != nil || streams[k].done.Load() < other.last {
							t.Error("too early", err)
						}
					default:
						correct(err)
					}
				default:
					if done, err := p.TryFast(pt); !done && err == nil {
						correct(p.Wait(ctx, pt, o, rand.IntN(2) == 0))
					}
				}
				closer.Wait()
				cancel()
				if rand.IntN(50) == 0 {
					p.Wake()
					p.Moved(pt)
				}
			}
		})
	}
	crowd.Wait()
	stop.Store(true)
	device.Wait()
	for i := range pollers {
		rest(t, &pollers[i])
	}
	becomes(t, func() bool { return returned.Load() == calls.Load() })
	require.Zero(t, polling.n.Load())
	require.Zero(t, spinning.n.Load())
	check()
}

// Adding, cancelling and ending cost little, however many wait, in whatever order.
func TestManyComeAndGo(t *testing.T) {
	var p Poller
	s := new(stream)
	const n = 10_000
	order := rand.Perm(n)
	owners := make([]Owner, n)
	began := time.Now()
	for i := range order { // backwards
		p.Notify(s.at(uint64(n-i)), &owners[i], func(error) {})
	}
	for _, i := range order {
		owners[i].End(&p)
	}
	rest(t, &p)
	took := time.Since(began)
	t.Logf("%v each", took/n)
	require.Less(t, took, 5*time.Second)
}
