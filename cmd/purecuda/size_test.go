package main

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzSize(f *testing.F) {
	for _, text := range []string{"4096", "64MiB", "1 gib", "0", "-1", "9223372036854775807", "8589934592GiB", "1.5KiB", "B", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var s, again size
		if s.Set(text) != nil {
			require.Zero(t, s, "a refused text changes nothing")
			return
		}
		require.Positive(t, s)
		require.LessOrEqual(t, uint64(s), uint64(math.MaxInt64))
		require.NoError(t, again.Set(fmt.Sprint(uint64(s))))
		require.Equal(t, s, again)
	})
}
