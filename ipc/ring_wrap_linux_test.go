package ipc

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// advanced makes both ends of a new ring believe that each slot was used so often
// before: the words, and the number of the next batch. Both processes are in this one,
// so both can be set.
func advanced(p *Producer[uint32], c *Consumer[uint32], rounds uint64) {
	for _, r := range []*ring{p.ring, c.ring} {
		r.next = rounds * uint64(r.slots)
		for i := range r.gate.(*counters).slots {
			atomic.StoreUint32(r.gate.(*counters).slots[i].word, uint32(rounds))
		}
	}
}

func TestRingCountersWrapAround(t *testing.T) {
	for _, limit := range []uint64{1 << 30, 1 << 31, 1 << 32, 1 << 33} {
		for _, slots := range []int{1, 3} {
			t.Run(fmt.Sprintf("%#x, %d slots", limit, slots), func(t *testing.T) {
				d := newDuo(t)
				p, c := d.ring(t, slots, 8)
				advanced(p, c, limit-5)
				for n := range uint32(10 * slots) {
					release := d.hold(t, d.a.stream)
					send(t, p, d.a.stream, n)
					x := take(t, c, d.b.stream)
					done, err := x.there.Query()
					require.NoError(t, err)
					require.False(t, done, "batch %d", x.Number)
					release()
					x.has(t, n)
				}
				require.NoError(t, p.Flush(within(t, 5*time.Second)))
				send(t, p, d.a.stream, 1)
				require.NoError(t, p.Close())
				ends(t, c, d.b.stream, 1)
			})
		}
	}
}

// The end of an end near the limit moves the words beyond it.
func TestRingDeathNearTheWrapAround(t *testing.T) {
	for _, limit := range []uint64{1 << 31, 1 << 32} {
		for _, before := range []uint64{0, 1, 2} {
			d := newDuo(t)
			p, c := d.ring(t, 1, 8)
			advanced(p, c, limit-before)
			send(t, p, d.a.stream, 1)
			x, y := take(t, c, d.b.stream), Batch[uint32]{}
			x.has(t, 1)
			y, err := c.Next(t.Context(), d.b.stream)
			require.NoError(t, err)
			d.kill(d.a)
			lost(t, y.Confirm(within(t, 5*time.Second)))
			require.NoError(t, x.Confirm(t.Context()))
			d.b.runs(t)
			require.NoError(t, c.Close())
			require.NoError(t, p.Close())
			freed(t, d)
		}
	}
}
