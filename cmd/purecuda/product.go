package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
)

// Beside its bytes each batch has a matrix, which the device multiplies by a
// matrix of weights that stays there. The matrices are random numbers in [-1,1),
// other ones for each batch, so the product says which batch it is of.

// weights stands for the number of a batch where its matrix is made.
const weights = -1

// matrix returns the n×n matrix of a batch, by rows.
func matrix(batch, n int) []float32 {
	r := rand.New(rand.NewPCG(uint64(batch+1), 0))
	m := make([]float32, n*n)
	for i := range m {
		m[i] = 2*r.Float32() - 1
	}
	return m
}

// reference is what a product should be.
type reference struct {
	n    int
	want []float64
	// rows and columns are the lengths of the rows of the one matrix and of the
	// columns of the other.
	rows, columns []float64
}

// references returns the products of the matrices of all batches and the weights,
// calculated by the CPU in float64.
func references(batches, n int) []*reference {
	b := matrix(weights, n)
	all := make([]*reference, batches)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i] = multiply(matrix(i, n), b, n) })
	}
	wg.Wait()
	return all
}

func multiply(a, b []float32, n int) *reference {
	ref := &reference{n, make([]float64, n*n), make([]float64, n), make([]float64, n)}
	for row := range n {
		out := ref.want[row*n:][:n]
		for k := range n {
			x := float64(a[row*n+k])
			ref.rows[row] += x * x
			for column, y := range b[k*n:][:n] {
				out[column] += x * float64(y)
			}
		}
	}
	for i, y := range b {
		ref.columns[i%n] += float64(y) * float64(y)
	}
	for i := range n {
		ref.rows[i], ref.columns[i] = math.Sqrt(ref.rows[i]), math.Sqrt(ref.columns[i])
	}
	return ref
}

// tolerated says what tolerance returns.
const tolerated = "n·2⁻²⁴·|row|·|column|"

// tolerance returns how far an element may be off. A sum of n products in float32
// is off by at most n·u/(1-n·u) times the sum of their absolute values, where u
// is 2^-24, in whatever order they are added and whether or not multiplications
// and additions are rounded together; and that sum is at most the length of the
// row times that of the column. The reference's own errors are 2^-29 of that.
func (ref *reference) tolerance(i int) float64 {
	e := float64(ref.n) * 0x1p-24
	return e / (1 - e) * ref.rows[i/ref.n] * ref.columns[i%ref.n]
}

// compare returns how many elements of got are off by more than the tolerance,
// which of them is the first, and how far the worst of the others is off, in
// tolerances.
func (ref *reference) compare(got []float32) (wrongs, first int, worst float64) {
	for i, want := range ref.want {
		off, tolerance := math.Abs(float64(got[i])-want), ref.tolerance(i)
		switch {
		case off <= tolerance: // not so for NaN
			if off > 0 {
				worst = max(worst, off/tolerance)
			}
		case wrongs == 0:
			first = i
			fallthrough
		default:
			wrongs++
		}
	}
	return wrongs, first, worst
}

// checkProduct compares the product of a batch with its reference, of those of
// all batches. It returns how far the worst element is off, in tolerances.
func checkProduct(got []float32, batch int, refs []*reference) (float64, error) {
	ref := refs[batch]
	wrongs, first, worst := ref.compare(got)
	if wrongs == 0 {
		return worst, nil
	}
	return 0, fmt.Errorf("batch %d: %d of %d elements of its product are wrong, the first in row %d, column %d: %v instead of %v ± %.1g, %s",
		batch, wrongs, len(got), first/ref.n, first%ref.n, got[first], ref.want[first], ref.tolerance(first), productOf(got, batch, refs))
}

// productOf says what a product is that is not the batch's, as far as it tells.
func productOf(got []float32, batch int, refs []*reference) string {
	for of, ref := range refs {
		if of == batch {
			continue
		}
		if wrongs, _, _ := ref.compare(got); wrongs > 0 {
			continue
		}
		if of > batch {
			return fmt.Sprintf("all as in batch %d: a matrix was overwritten before it had been read", of)
		}
		return fmt.Sprintf("all as in batch %d: a matrix was read before it had been written", of)
	}
	for _, x := range got {
		if x != x {
			return "which is of no batch: a matrix was read before one was there, or there was no product"
		}
	}
	return "which is of no batch: a matrix was read while it was being written, or is damaged"
}

// notANumber is what buffers hold before they hold a matrix. A product with one
// such element has a row of them.
var notANumber = float32(math.NaN())
