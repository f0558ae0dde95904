package races

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

func TestValuesThatEndAWait(t *testing.T) {
	const all = ^uint32(0)
	for _, c := range []struct {
		flags, value, word uint32
		ends               bool
	}{
		{driver.StreamWaitValueGEQ, 5, 5, true},
		{driver.StreamWaitValueGEQ, 5, 6, true},
		{driver.StreamWaitValueGEQ, 5, 4, false},
		{driver.StreamWaitValueGEQ, all, 0, true}, // which comes after it
		{driver.StreamWaitValueGEQ, 0, all, false},
		{driver.StreamWaitValueEQ, 5, 5, true},
		{driver.StreamWaitValueEQ, 5, 6, false},
		{driver.StreamWaitValueAND, 6, 3, true},
		{driver.StreamWaitValueAND, 4, 3, false},
		{driver.StreamWaitValueNOR, 1, 2, true},
		{driver.StreamWaitValueNOR, 1, all - 1, false},
	} {
		w := openWait{flags: c.flags, value: c.value}
		require.Equal(t, c.ends, w.ends(c.word), "%+v", c)
	}
}
