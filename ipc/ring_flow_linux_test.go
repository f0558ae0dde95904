package ipc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/testgpu"
)

// flow is a run of batches through a ring, each element of which is checked.
type flow struct {
	slots, batches       int
	streams              int           // of each end, used in turn
	group                int           // batches that an end has at a time, and gives back in any order
	producing, consuming time.Duration // pretended work for a batch
}

func TestRingFlow(t *testing.T) {
	for _, f := range []flow{
		{slots: 1, batches: 400, streams: 1, group: 1},
		{slots: 1, batches: 400, streams: 3, group: 1},
		{slots: 2, batches: 600, streams: 2, group: 2},
		{slots: 3, batches: 600, streams: 2, group: 2},
		{slots: 3, batches: 600, streams: 4, group: 3},
		{slots: 8, batches: 1500, streams: 1, group: 1},
		{slots: 8, batches: 600, streams: 3, group: 5},
		{slots: 3, batches: 400, streams: 2, group: 2, producing: 100 * time.Microsecond},
		{slots: 3, batches: 400, streams: 2, group: 2, consuming: 100 * time.Microsecond},
	} {
		t.Run(fmt.Sprintf("%+v", f), func(t *testing.T) {
			d := newDuo(t)
			f.run(t, d)
		})
	}
}

func (f flow) run(t *testing.T, d *duo) {
	const length = 64
	p, c := d.ring(t, f.slots, length)
	x := newSource(t, d.a, length)
	sent := testgpu.Go(func() error { return f.produce(d, p, x, d.a.streams(t, f.streams)) })
	require.NoError(t, f.consume(t, d, c, x, d.b.streams(t, f.streams)))
	require.NoError(t, testgpu.Receive(t, sent))
	require.NoError(t, p.Close())
	_, err := c.Next(t.Context(), d.b.stream) // too early, perhaps
	if err != nil {
		require.ErrorIs(t, err, io.EOF)
	}
}

func (f flow) produce(d *duo, p *Producer[uint32], x *source, streams []*cuda.Stream) error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	for n := 0; n < f.batches; {
		var slots []Slot[uint32]
		for ; len(slots) < f.group && n < f.batches; n++ {
			slot, err := p.Next(ctx, streams[n%len(streams)])
			if err != nil {
				return err
			}
			if slot.Number != uint64(n) {
				return fmt.Errorf("batch %d, and not %d", slot.Number, n)
			}
			slots = append(slots, slot)
		}
		for _, i := range rand.Perm(len(slots)) {
			s := streams[slots[i].Number%uint64(len(streams))]
			if f.producing > 0 {
				d.gpu.Run(s, f.producing)
			}
			if err := x.fill(s, slots[i]); err != nil {
				return err
			}
			if err := slots[i].Send(s); err != nil {
				return err
			}
		}
	}
	return p.Flush(ctx)
}

func (f flow) consume(t *testing.T, d *duo, c *Consumer[uint32], x *source, streams []*cuda.Stream) error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	hosts := make([]*cuda.HostBuffer[uint32], 2*f.slots)
	for i := range hosts {
		var err error
		hosts[i], err = cuda.AllocHost[uint32](d.b.dev, x.length, nil)
		require.NoError(t, err)
		defer hosts[i].Close()
	}
	var pending []Batch[uint32] // copied to hosts, in their order
	check := func() error {
		b := pending[0]
		pending = pending[1:]
		if err := b.Confirm(ctx); err != nil {
			return err
		}
		if err := streams[b.Number%uint64(len(streams))].SynchronizeContext(ctx); err != nil {
			return err
		}
		if !x.is(hosts[b.Number%uint64(len(hosts))].Slice(), b.Number) {
			return fmt.Errorf("batch %d is wrong", b.Number)
		}
		return nil
	}
	for n := 0; n < f.batches; {
		var batches []Batch[uint32]
		for ; len(batches) < f.group && n < f.batches; n++ {
			b, err := c.Next(ctx, streams[n%len(streams)])
			if err != nil {
				return err
			}
			if b.Number != uint64(n) {
				return fmt.Errorf("batch %d, and not %d", b.Number, n)
			}
			batches = append(batches, b)
		}
		for len(pending)+len(batches) > len(hosts) {
			if err := check(); err != nil {
				return err
			}
		}
		for _, i := range rand.Perm(len(batches)) {
			b := batches[i]
			s := streams[b.Number%uint64(len(streams))]
			if f.consuming > 0 {
				d.gpu.Run(s, f.consuming)
			}
			if err := cuda.Copy(s, hosts[b.Number%uint64(len(hosts))], b.Buffer); err != nil {
				return err
			}
			if err := b.Release(s); err != nil {
				return err
			}
		}
		pending = append(pending, batches...)
	}
	for len(pending) > 0 {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// Several goroutines share each end, each with a stream of its own.
func TestRingGoroutines(t *testing.T) {
	const batches, workers, length = 1500, 4, 16
	d := newDuo(t)
	p, c := d.ring(t, 8, length)
	x := newSource(t, d.a, length)
	var mu sync.Mutex
	seen := map[uint64]int{}
	var all, sending sync.WaitGroup
	for _, s := range d.a.streams(t, workers) {
		sending.Go(func() {
			for last := uint64(0); last < batches; {
				slot, err := p.Next(t.Context(), s)
				if errors.Is(err, cuda.ErrInvalid) { // another one still has the oldest
					runtime.Gosched()
					continue
				}
				if err == nil {
					last = slot.Number
					err = errors.Join(x.fill(s, slot), slot.Send(s))
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Go(func() {
		sending.Wait()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, s := range d.b.streams(t, workers) {
		host, err := cuda.AllocHost[uint32](d.b.dev, length, nil)
		require.NoError(t, err)
		closes(t, host)
		all.Go(func() {
			for {
				b, err := c.Next(t.Context(), s)
				if errors.Is(err, cuda.ErrInvalid) {
					runtime.Gosched()
					continue
				}
				if err == nil {
					err = errors.Join(cuda.Copy(s, host, b.Buffer), b.Release(s))
					if err == nil {
						err = b.Confirm(t.Context())
					}
				}
				if errors.Is(err, io.EOF) {
					return
				}
				if err == nil {
					err = s.Synchronize()
				}
				if err != nil {
					t.Error(err)
					return
				}
				if !x.is(host.Slice(), b.Number) {
					t.Errorf("batch %d is wrong", b.Number)
				}
				mu.Lock()
				seen[b.Number]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	require.GreaterOrEqual(t, len(seen), batches)
	for n := range uint64(len(seen)) {
		require.Equal(t, 1, seen[n], "batch %d", n)
	}
}

// Two rings of one session, one in each direction.
func TestRingsBothWays(t *testing.T) {
	d := newDuo(t)
	p, c := newTestRing(t, d.a, d.b, "there", 2, 4)
	q, e := newTestRing(t, d.b, d.a, "back", 3, 4)
	for n := range uint32(50) {
		send(t, p, d.a.stream, n)
		x := take(t, c, d.b.stream)
		slot, err := q.Next(t.Context(), d.b.stream)
		require.NoError(t, err)
		require.NoError(t, cuda.Copy(d.b.stream, slot.Buffer, x.host))
		require.NoError(t, slot.Send(d.b.stream))
		take(t, e, d.a.stream).has(t, n)
		x.has(t, n)
	}
	require.NoError(t, p.Close())
	require.NoError(t, q.Close())
	require.NoError(t, c.Close())
	require.NoError(t, e.Close())
	testgpu.WaitUntil(t, func() bool { return d.a.live() == 50 && d.b.live() == 50 })
}
