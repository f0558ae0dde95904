package refs

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// step is one call of a method, and what it must answer.
type step struct {
	name string
	call func() []bool
	want []bool
}

func acquire(c *Count, want bool) step {
	return step{"Acquire", func() []bool { return []bool{c.Acquire()} }, []bool{want}}
}

func acquireUsed(c *Count, want bool) step {
	return step{"AcquireUsed", func() []bool { return []bool{c.AcquireUsed()} }, []bool{want}}
}

func release(c *Count, last bool) step {
	return step{"Release", func() []bool { return []bool{c.Release()} }, []bool{last}}
}

func closeCount(c *Count, first, last bool) step {
	return step{"Close", func() []bool { a, b := c.Close(); return []bool{a, b} }, []bool{first, last}}
}

func TestCount(t *testing.T) {
	var c Count
	for name, steps := range map[string][]step{
		"closed unused":           {closeCount(&c, true, true), acquire(&c, false), acquireUsed(&c, false)},
		"closed twice":            {closeCount(&c, true, true), closeCount(&c, false, false)},
		"released before it":      {acquire(&c, true), release(&c, false), closeCount(&c, true, true)},
		"released after it":       {acquire(&c, true), closeCount(&c, true, false), release(&c, true)},
		"the last of two":         {acquire(&c, true), acquire(&c, true), closeCount(&c, true, false), release(&c, false), release(&c, true)},
		"closed twice and used":   {acquire(&c, true), closeCount(&c, true, false), closeCount(&c, false, false), release(&c, true)},
		"not acquired when shut":  {acquire(&c, true), closeCount(&c, true, false), acquire(&c, false), release(&c, true)},
		"acquired while used":     {acquire(&c, true), closeCount(&c, true, false), acquireUsed(&c, true), release(&c, false), release(&c, true), acquireUsed(&c, false)},
		"acquired used when open": {acquireUsed(&c, true), release(&c, false), closeCount(&c, true, true)},
	} {
		t.Run(name, func(t *testing.T) {
			c = Count{}
			for i, s := range steps {
				require.Equal(t, s.want, s.call(), "step %d, %s", i, s.name)
				wasClosed := false
				for _, before := range steps[:i+1] {
					wasClosed = wasClosed || before.name == "Close"
				}
				require.Equal(t, wasClosed, c.Closed())
			}
		})
	}
}

// However many use and close an object, one of them is told to destroy it, and nobody uses
// it then or later.
func TestCountStorm(t *testing.T) {
	for range rounds(2000) {
		var c Count
		var destroyed, closers atomic.Int32
		destroy := func() {
			if destroyed.Add(1) > 1 {
				t.Error("destroyed twice")
			}
		}
		var all sync.WaitGroup
		begin := make(chan struct{})
		for g := range 3 {
			all.Go(func() {
				<-begin
				for i := 0; ; i++ {
					if g == 0 && i == 3 || i == 20 {
						first, last := c.Close()
						if first {
							closers.Add(1)
						}
						if last {
							destroy()
						}
					}
					take := c.Acquire
					if i%4 == 3 {
						take = c.AcquireUsed
					}
					if !take() {
						return
					}
					if destroyed.Load() > 0 {
						t.Error("used after it was destroyed")
					}
					runtime.Gosched()
					if destroyed.Load() > 0 {
						t.Error("destroyed while it was used")
					}
					if c.Release() {
						destroy()
					}
				}
			})
		}
		close(begin)
		all.Wait()
		require.EqualValues(t, 1, destroyed.Load())
		require.EqualValues(t, 1, closers.Load())
	}
}

// rounds is how often a storm is tried: less often if tests must be short.
func rounds(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}
