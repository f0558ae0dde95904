package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPattern checks what the demo's verdict rests on: at no place do two
// batches, or a batch and the poison, have the same byte.
func TestPattern(t *testing.T) {
	// Around the end of the first run there is each byte of two runs.
	const from, n = runLength - period, runLength + period
	seen := make([][256]bool, n)
	b := make([]byte, n)
	for batch := range period {
		write(b, batch)
		require.Nil(t, compare(b, batch))
		for i := from; i < n; i++ {
			if b[i] == poison || seen[i][b[i]] {
				t.Fatalf("batch %d has at %d a byte that is not only its own: %#02x", batch, i, b[i])
			}
			seen[i][b[i]] = true
		}
	}
}

func TestCompare(t *testing.T) {
	b := make([]byte, runLength+100)
	write(b, 7)
	other := make([]byte, len(b))
	write(other, 9)
	const at = runLength + 5
	b[at] = other[at]
	w := compare(b, 7)
	require.NotNil(t, w)
	assert.Equal(t, at, w.first)
	assert.Equal(t, 1, w.wrongs)
	assert.Contains(t, w.Error(), "as in batch 9: a buffer was overwritten before it had been read")

	w = compare(other, 10)
	require.NotNil(t, w)
	assert.Equal(t, len(b), w.wrongs)
	assert.Contains(t, w.Error(), "as in batch 9: a buffer was read before it had been written")

	write(b, 7)
	b[3] = poison
	assert.Contains(t, compare(b, 7).Error(), "of no batch")
	require.NotNil(t, compare(make([]byte, 1), 0))
}

func TestSize(t *testing.T) {
	for text, want := range map[string]size{"1": 1, "17B": 17, "4KiB": 4096, "64mib": 64 << 20, "2 GiB": 2 << 30} {
		var s size
		require.NoError(t, s.Set(text), text)
		assert.Equal(t, want, s, text)
	}
	for s, want := range map[size]string{0: "0 B", 1023: "1023 B", 1024: "1 KiB", 64 << 20: "64 MiB", 3 << 29: "1.5 GiB"} {
		assert.Equal(t, want, s.String())
	}
}
