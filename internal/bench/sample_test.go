package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fake returns a way whose samples take 10, 20, 30... microseconds, and which says
// in log when it does one.
func fake(r *Row, name string, log *[]string) *Way {
	samples := 0
	return &Way{Row: r, Name: name, N: 1000, Do: func(n int) (time.Duration, error) {
		samples++
		*log = append(*log, fmt.Sprintf("%s %s", r.ID, name))
		return time.Duration(samples*n) * 10 * time.Nanosecond, nil
	}}
}

func TestSampleTakesTurns(t *testing.T) {
	var log []string
	x, y := &Row{ID: "x"}, &Row{ID: "y"}
	ways := []*Way{fake(x, "a", &log), fake(x, "b", &log), fake(x, "c", &log), fake(y, "a", &log)}
	require.NoError(t, Sample(t.Context(), nil, ways, 2))
	require.Len(t, log, (warmUp+2)*len(ways))
	require.Equal(t, []string{
		"x a", "x b", "x c", "y a",
		"x b", "x c", "x a", "y a",
		"x c", "x a", "x b", "y a",
		"x a", "x b", "x c", "y a",
	}, log[:16])
	for _, w := range ways {
		require.Equal(t, []float64{10 * (warmUp + 1), 10 * (warmUp + 2)}, w.NS, "the first rounds do not count")
	}
}

func TestSampleEnds(t *testing.T) {
	var log []string
	broken := errors.New("broken")
	r := &Row{ID: "x"}
	bad := &Way{Row: r, Name: "bad", N: 1, Do: func(int) (time.Duration, error) { return 0, broken }}
	err := Sample(t.Context(), nil, []*Way{fake(r, "a", &log), bad}, 5)
	require.ErrorIs(t, err, broken)
	require.EqualError(t, err, "x by bad: broken")
	require.Len(t, log, 1)

	ctx, cancel := context.WithCancel(t.Context())
	stopping := &Way{Row: r, Name: "stopping", N: 1, Do: func(int) (time.Duration, error) { cancel(); return 1, nil }}
	require.ErrorIs(t, Sample(ctx, nil, []*Way{stopping}, 5), context.Canceled)
	require.Empty(t, stopping.NS)
}

func TestSampleWithoutWhatIsUnsupported(t *testing.T) {
	var log []string
	r, calls := &Row{ID: "x"}, 0
	old := &Way{Row: r, Name: "old", N: 1, Do: func(int) (time.Duration, error) {
		calls++
		return 0, fmt.Errorf("no: %w", errors.ErrUnsupported)
	}}
	other := fake(r, "a", &log)
	require.NoError(t, Sample(t.Context(), nil, []*Way{old, other}, 5))
	require.Equal(t, 1, calls)
	require.ErrorIs(t, old.Missing, errors.ErrUnsupported)
	require.Empty(t, old.NS)
	require.Len(t, other.NS, 5)
}

func TestTogether(t *testing.T) {
	const threads, n = 8, 3
	var here, operations atomic.Int32
	broken := errors.New("broken")
	do := make([]func(int) error, threads)
	for i := range do {
		do[i] = func(n int) error {
			// Nobody can go on before all are here, or they do not run at the same time.
			here.Add(1)
			for here.Load() < threads {
				time.Sleep(time.Millisecond)
			}
			operations.Add(int32(n))
			if i == threads-1 {
				return broken
			}
			return nil
		}
	}
	took, err := Together(n, do)
	require.ErrorIs(t, err, broken)
	require.GreaterOrEqual(t, took, time.Duration(0))
	require.Equal(t, int32(threads*n), operations.Load())
}
