package cuda

import (
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// However many records of an event are under way, none of them counts.
func TestRecordsThatOverlapDoNotCount(t *testing.T) {
	for _, n := range []int{2, 1000, underWay / 2} {
		var c coverage
		s, other := &handle{}, &handle{}
		records := make([]recording, n)
		for i := range records {
			records[i] = c.begin(s)
		}
		c.end(records[0], s, s.recorded(), true)
		if n < underWay/2 {
			c.end(c.begin(other), other, other.recorded(), true)
		}
		require.True(t, c.recording())
		require.Zero(t, c.place())
		for _, r := range records[1:] {
			c.end(r, s, s.recorded(), true)
		}
		require.False(t, c.recording())
		require.Zero(t, c.place())
		c.end(c.begin(s), s, s.recorded(), true)
		require.Equal(t, s, c.place().stream)
	}
}

// More than can be counted wait for one another.
func TestMoreRecordsThanCanBeCounted(t *testing.T) {
	var c coverage
	s := &handle{}
	var all sync.WaitGroup
	begun := make(chan recording, underWay)
	for range underWay / 2 {
		begun <- c.begin(s)
	}
	for range 100 {
		all.Go(func() { begun <- c.begin(s) })
	}
	for range underWay/2 + 100 {
		c.end(<-begun, s, s.recorded(), true)
	}
	all.Wait()
	require.False(t, c.recording())
}

// The place of a record is between the counts before and after it, also where the
// numbers come round.
func TestPlaces(t *testing.T) {
	for _, start := range []uint64{0, 1<<40 - 2, 1 << 40, 5<<40 - 1} {
		s := &handle{}
		s.word.Store(start << recordsShift)
		var first, second, long coverage
		r := long.begin(s)
		first.end(first.begin(s), s, s.recorded(), true)
		second.end(second.begin(s), s, s.recorded(), true)
		long.end(r, s, s.recorded(), true)
		a, b, c := first.place(), second.place(), long.place()
		require.True(t, before(a.last, b.last))
		require.False(t, before(b.last, a.last))
		require.False(t, before(b.first, a.last), "certainly later")
		require.True(t, before(c.first, a.last), "not certainly later")
		require.True(t, before(b.last, c.last))

		var failed coverage
		failed.end(failed.begin(s), s, s.recorded(), false)
		require.Zero(t, failed.place())

		var wide coverage
		r = wide.begin(s)
		s.word.Add(maxWidth << recordsShift)
		wide.end(r, s, s.recorded(), true)
		require.Zero(t, wide.place())

		s.word.Add(1 << 39 << recordsShift)
		require.Zero(t, first.place(), "too long ago")
	}
}

func TestHandlesShareNoCacheLine(t *testing.T) {
	require.Zero(t, unsafe.Sizeof(handle{})%256, "a size at which the allocator aligns")
	require.EqualValues(t, 64, unsafe.Offsetof(handle{}.covers), "what all kinds need is in one line")
	require.EqualValues(t, 128, unsafe.Offsetof(handle{}.memory), "and what streams and events need in the next")
}

// A call that fails to acquire what is destroyed counts itself for a moment.
func TestWhatIsDestroyedIsNotRetained(t *testing.T) {
	h := &handle{dev: &Device{driver: &Driver{}}}
	for word, retained := range map[uint64]bool{
		0:                       true,
		letGo + 1:               true,
		letGo:                   false,
		letGo | destroyed:       false,
		letGo | destroyed + 1:   false,
		5<<recordsShift | letGo: false,
		5<<recordsShift | 1:     true,
	} {
		h.word.Store(word)
		require.Equal(t, retained, h.tryRetain(), "%#x", word)
	}
}
