package main

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sums are ways to add products in float32.
var sums = map[string]func(a, b []float32) float32{
	"forward": func(a, b []float32) (s float32) {
		for i := range a {
			s += float32(a[i] * b[i])
		}
		return s
	},
	"backward": func(a, b []float32) (s float32) {
		for i := len(a) - 1; i >= 0; i-- {
			s += float32(a[i] * b[i])
		}
		return s
	},
	"fused": func(a, b []float32) (s float32) {
		for i := range a {
			s = float32(math.FMA(float64(a[i]), float64(b[i]), float64(s)))
		}
		return s
	},
	"by halves": byHalves,
}

func byHalves(a, b []float32) float32 {
	if len(a) == 1 {
		return a[0] * b[0]
	}
	h := len(a) / 2
	return byHalves(a[:h], b[:h]) + byHalves(a[h:], b[h:])
}

// product multiplies n×n matrices.
func product(a, b []float32, n int, sum func(a, b []float32) float32) []float32 {
	c, column := make([]float32, n*n), make([]float32, n)
	for j := range n {
		for i := range n {
			column[i] = b[i*n+j]
		}
		for i := range n {
			c[i*n+j] = sum(a[i*n:][:n], column)
		}
	}
	return c
}

// TestTolerance checks that each way to add is within the tolerance, for matrices
// that make it hard, and that the tolerance for the demo's is narrow: elements are
// up to 1, and products of them up to sqrt(n)/3 or so.
func TestTolerance(t *testing.T) {
	ones := func(n int) []float32 {
		m := make([]float32, n*n)
		set(m, 1.1) // all errors go the same way
		return m
	}
	for _, n := range []int{1, 2, 64, 129} {
		for what, m := range map[string][2][]float32{
			"random": {matrix(0, n), matrix(weights, n)},
			"equal":  {ones(n), ones(n)},
		} {
			ref := multiply(m[0], m[1], n)
			for name, sum := range sums {
				wrongs, _, worst := ref.compare(product(m[0], m[1], n, sum))
				assert.Zero(t, wrongs, "%d %s %s", n, what, name)
				assert.LessOrEqual(t, worst, 1.0)
			}
			for i := range ref.want {
				require.True(t, what == "equal" || ref.tolerance(i) < 1e-5*float64(n), "%d", n)
			}
		}
	}
}

func TestReference(t *testing.T) {
	ref := multiply([]float32{1, 2, 3, 4}, []float32{5, 6, 7, 8}, 2)
	assert.Equal(t, []float64{19, 22, 43, 50}, ref.want)
	assert.Equal(t, []float64{math.Sqrt(5), 5}, ref.rows)
	assert.Equal(t, []float64{math.Sqrt(74), 10}, ref.columns)
	assert.InEpsilon(t, 2.0/(1<<24)*5*math.Sqrt(74), ref.tolerance(2), 1e-6)
}

// TestMatrices checks what the verdict rests on: no two batches have the same
// matrix, nor has a batch that of the weights, not even in part.
func TestMatrices(t *testing.T) {
	const n = 8
	seen := make(map[float32]int)
	for batch := weights; batch < period; batch++ {
		same := 0
		for _, x := range matrix(batch, n) {
			require.True(t, -1 <= x && x < 1)
			if of, ok := seen[x]; ok && of != batch {
				same++
			}
			seen[x] = batch
		}
		require.Less(t, same, n, "batch %d", batch)
		require.Equal(t, matrix(batch, n), matrix(batch, n))
	}
}

func TestCheckProduct(t *testing.T) {
	const n = 64
	refs := references(4, n)
	good := func(batch int) []float32 { return product(matrix(batch, n), matrix(weights, n), n, sums["forward"]) }
	for i := range refs {
		worst, err := checkProduct(good(i), i, refs)
		require.NoError(t, err)
		require.Greater(t, worst, 0.0)
		require.Less(t, worst, 1.0)
	}

	const at = 5*n + 7
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for name, c := range map[string]struct {
		got    func() []float32
		batch  int
		says   string
		source string
	}{
		"a batch that came later": {func() []float32 { return good(3) }, 1,
			"batch 1: 4096 of 4096 elements of its product are wrong, the first in row 0, column 0: ",
			", all as in batch 3: a matrix was overwritten before it had been read"},
		"a batch that came before": {func() []float32 { return good(0) }, 1,
			"batch 1: 4096 of 4096 elements of its product are wrong",
			", all as in batch 0: a matrix was read before it had been written"},
		"part of a batch that came later": {func() []float32 { return append(good(1)[:at], good(2)[at:]...) }, 1,
			"batch 1: 3769 of 4096 elements of its product are wrong, the first in row 5, column 7: ",
			", which is of no batch: a matrix was read while it was being written, or is damaged"},
		"a little more than the tolerance": {func() []float32 {
			g := good(1)
			g[at] = float32(refs[1].want[at] + 1.01*refs[1].tolerance(at))
			return g
		}, 1, "batch 1: 1 of 4096 elements of its product are wrong, the first in row 5, column 7: ", "damaged"},
		"not a number": {func() []float32 { g := good(1); g[at] = nan; return g }, 1,
			"batch 1: 1 of 4096 elements of its product are wrong, the first in row 5, column 7: NaN instead of ",
			", which is of no batch: a matrix was read before one was there, or there was no product"},
		"infinite": {func() []float32 { g := good(1); g[at] = inf; return g }, 1,
			"batch 1: 1 of 4096 elements of its product are wrong, the first in row 5, column 7: +Inf instead of ", "damaged"},
		"nothing": {func() []float32 { return make([]float32, n*n) }, 1,
			" 4096 elements of its product are wrong, the first in row 0, column 0: 0 instead of ", "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := checkProduct(c.got(), c.batch, refs)
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, err, c.source)
		})
	}

	g := good(1)
	g[at] = float32(refs[1].want[at] + 0.9*refs[1].tolerance(at))
	worst, err := checkProduct(g, 1, refs)
	require.NoError(t, err)
	require.InDelta(t, 0.9, worst, 0.02)
}
