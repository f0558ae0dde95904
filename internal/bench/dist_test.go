package bench

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDist(t *testing.T) {
	require.Nil(t, NewDist(nil))
	require.Equal(t, &Dist{P10: 7, Median: 7, P90: 7}, NewDist([]float64{7}))
	require.Equal(t, &Dist{P10: 2, Median: 6, P90: 10}, NewDist([]float64{11, 3, 9, 5, 7, 1, 2, 4, 6, 8, 10}))
	d := NewDist([]float64{4, 2})
	require.InDelta(t, 2.2, d.P10, 1e-9)
	require.InDelta(t, 3, d.Median, 1e-9)
	require.InDelta(t, 3.8, d.P90, 1e-9)
}
