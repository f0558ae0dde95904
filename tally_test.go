package cuda

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTally(t *testing.T) {
	var x tally
	require.Zero(t, x.look())
	first := x.note()
	require.NotZero(t, first)
	require.Equal(t, first, x.note(), "nobody has looked")
	require.Equal(t, first, x.look())
	require.Equal(t, first, x.look())
	second := x.note()
	require.Greater(t, second, first)
	require.Equal(t, second, x.look())
}

// What a look covers had happened before it, whoever else notes and looks.
func TestTallyRaces(t *testing.T) {
	const times = 20000
	type look struct {
		number uint64
		begun  [4]uint64 // how many each goroutine had begun afterwards
	}
	var x tally
	var begun [4]atomic.Uint64
	var numbers [4][times + 1]uint64
	var looks [2][]look
	var all sync.WaitGroup
	for g := range begun {
		all.Go(func() {
			for range times {
				n := begun[g].Add(1)
				numbers[g][n] = x.note()
			}
		})
	}
	for l := range looks {
		all.Go(func() {
			for range times {
				k := look{number: x.look()}
				for g := range begun {
					k.begun[g] = begun[g].Load()
				}
				looks[l] = append(looks[l], k)
			}
		})
	}
	all.Wait()
	for _, k := range append(looks[0], looks[1]...) {
		for g, n := range k.begun {
			if n < times {
				require.Greater(t, numbers[g][n+1], k.number, "it had not begun when others looked")
			}
		}
	}
}
