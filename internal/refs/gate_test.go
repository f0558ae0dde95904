package refs

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Each flag is seen by the calls that enter while it is set, and by no other.
func TestGateFlags(t *testing.T) {
	for name, c := range map[string]struct {
		set, clear func(*Gate)
		seen       func(Word) bool
	}{
		"closed":   {func(g *Gate) { g.Close() }, nil, Word.Closed},
		"halted":   {func(g *Gate) { g.Halt() }, func(g *Gate) { g.Resume() }, Word.Halted},
		"diverted": {(*Gate).Divert, func(g *Gate) { g.Restore() }, Word.Diverted},
		"full":     {func(g *Gate) { g.Begin(numbers); g.EnterRecord(); g.Leave() }, func(g *Gate) { g.Renumber() }, Word.Full},
	} {
		t.Run(name, func(t *testing.T) {
			var g Gate
			for _, enter := range []func() Word{g.Enter, g.EnterRecord} {
				require.True(t, enter().Clear())
				require.False(t, g.Leave())
			}
			c.set(&g)
			for _, enter := range []func() Word{g.Enter, g.EnterRecord} {
				w := enter()
				require.False(t, w.Clear())
				for other, seen := range map[string]func(Word) bool{"closed": Word.Closed, "halted": Word.Halted, "diverted": Word.Diverted, "full": Word.Full} {
					require.Equal(t, other == name, seen(w), other)
				}
				require.False(t, g.Leave()) // Close was told already
			}
			require.Equal(t, name == "closed", g.Closed())
			require.Equal(t, name == "diverted", g.Diverted())
			if c.clear != nil {
				c.clear(&g)
				require.True(t, g.Enter().Clear())
				require.False(t, g.Leave())
			}
		})
	}
}

// The goroutine that is told to destroy the stream is the last of those who close it, end a
// call, a halt or a diversion; and nobody else is.
func TestGateDrains(t *testing.T) {
	enter := func(g *Gate) bool { g.Enter(); return false }
	halt := func(g *Gate) bool { g.Halt(); return false }
	divert := func(g *Gate) bool { g.Divert(); return false }
	shut := func(g *Gate) bool { _, drained := g.Close(); return drained }
	type steps []func(*Gate) bool
	for name, c := range map[string]steps{
		"closed idle":               {shut},
		"closed twice":              {enter, shut, shut, (*Gate).Leave},
		"the last call":             {enter, enter, shut, (*Gate).Leave, (*Gate).Leave},
		"a call of a closed one":    {enter, shut, enter, (*Gate).Leave, (*Gate).Leave},
		"halted":                    {halt, shut, (*Gate).Resume},
		"a call while halted":       {halt, shut, enter, (*Gate).Leave, (*Gate).Resume},
		"diverted":                  {divert, shut, (*Gate).Restore},
		"a call while diverted":     {divert, enter, shut, (*Gate).Leave, (*Gate).Restore},
		"restored with a call":      {divert, enter, shut, (*Gate).Restore, (*Gate).Leave},
		"halted and diverted":       {halt, divert, shut, (*Gate).Resume, (*Gate).Restore},
		"restored while halted":     {halt, divert, shut, (*Gate).Restore, (*Gate).Resume},
		"left while halted, closed": {halt, enter, shut, (*Gate).Leave, (*Gate).Resume},
	} {
		t.Run(name, func(t *testing.T) {
			var g Gate
			for i, do := range c {
				require.Equal(t, i == len(c)-1, do(&g), "step %d", i)
			}
			g.Enter() // nothing drains it again
			require.False(t, g.Leave())
			_, drained := g.Close()
			require.False(t, drained)
		})
	}
	var open Gate
	for _, do := range (steps{enter, (*Gate).Leave, halt, (*Gate).Resume, divert, (*Gate).Restore}) {
		require.False(t, do(&open), "it is open")
	}
	first, _ := open.Close()
	again, _ := open.Close()
	require.True(t, first)
	require.False(t, again)
}

// Records are numbered one after the other, whatever else is done, and calls are told
// whether they are alone.
func TestGateNumbers(t *testing.T) {
	var g Gate
	g.Begin(6)
	w := g.EnterRecord()
	require.EqualValues(t, 7, w.Number())
	require.True(t, w.Alone())
	require.True(t, g.Quiet(1))
	require.False(t, g.Quiet(0))
	v := g.Enter()
	require.EqualValues(t, 7, v.Number())
	require.False(t, v.Alone())
	require.False(t, g.Quiet(1))
	g.Leave()
	g.Leave()
	require.True(t, g.Quiet(0))
	g.Halt()
	g.Divert()
	g.Close()
	require.EqualValues(t, 7, g.Number())
	require.EqualValues(t, 8, g.EnterRecord().Number())
}

// Where the numbers end they begin anew, and the flags and calls are what they were.
func TestGateRenumbers(t *testing.T) {
	var g Gate
	require.False(t, g.Renumber(), "there are numbers left")
	g.Begin(numbers - 1)
	require.True(t, g.EnterRecord().Clear())
	g.Leave()
	w := g.EnterRecord()
	require.True(t, w.Full())
	require.False(t, w.Clear())
	require.False(t, w.Halted() || w.Diverted() || w.Closed())
	g.Leave()
	g.Divert()
	g.Halt()
	require.True(t, g.Renumber())
	require.False(t, g.Renumber(), "another has done so")
	g.Resume()
	w = g.EnterRecord()
	require.EqualValues(t, 1, w.Number())
	require.True(t, w.Diverted())
	require.True(t, w.Alone())
}

// Halt returns when the calls under way are over, and a second one when the first has ended.
func TestGateHalts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		var trace []string
		var mu sync.Mutex
		note := func(s string) { mu.Lock(); trace = append(trace, s); mu.Unlock() }
		g.Enter()
		g.Enter()
		var all sync.WaitGroup
		began := time.Now()
		at := func(d time.Duration) { time.Sleep(time.Until(began.Add(d))) }
		all.Go(func() {
			g.Halt()
			note("halted")
			at(300 * time.Millisecond)
			note("resumes")
			g.Resume()
		})
		at(50 * time.Millisecond)
		all.Go(func() {
			g.Halt()
			note("halted again")
			g.Resume()
		})
		all.Go(func() {
			for w := g.Enter(); w.Halted(); w = g.Enter() {
				g.Leave()
				g.Wait()
			}
			g.Leave()
			if time.Since(began) < 300*time.Millisecond {
				t.Error("let in while halted")
			}
		})
		at(100 * time.Millisecond)
		note("leaves")
		g.Leave()
		at(200 * time.Millisecond)
		note("leaves")
		g.Leave()
		all.Wait()
		require.Equal(t, []string{"leaves", "leaves", "halted", "resumes", "halted again"}, trace)
		require.True(t, g.Enter().Clear())
	})
}

// Calls, records, halts, diversions and a close at once: no call is let in during a halt, no
// two halts overlap, one goroutine destroys, and that after all else.
func TestGateStorm(t *testing.T) {
	for range rounds(500) {
		var g Gate
		var inside, halts, destroyed atomic.Int32
		destroy := func(drained bool) {
			if !drained {
				return
			}
			if destroyed.Add(1) > 1 {
				t.Error("destroyed twice")
			}
			if inside.Load() != 0 || halts.Load() != 0 || g.Diverted() {
				t.Error("destroyed while it was used")
			}
		}
		var all sync.WaitGroup
		var numbers [3][]uint64
		for k := range numbers {
			all.Go(func() {
				for i := range 30 {
					enter := g.Enter
					if i%2 == 0 {
						enter = g.EnterRecord
					}
					w := enter()
					if i%2 == 0 {
						numbers[k] = append(numbers[k], w.Number())
					}
					switch {
					case w.Closed():
						destroy(g.Leave())
						continue
					case w.Halted():
						destroy(g.Leave())
						g.Wait()
						continue
					}
					inside.Add(1)
					runtime.Gosched()
					if halts.Load() != 0 || destroyed.Load() != 0 {
						t.Error("let in during a halt, or when it was destroyed")
					}
					inside.Add(-1)
					destroy(g.Leave())
				}
			})
		}
		for range 2 {
			all.Go(func() {
				for range 5 {
					g.Halt()
					if g.Closed() { // it may be destroyed
						destroy(g.Resume())
						return
					}
					if halts.Add(1) != 1 || inside.Load() != 0 {
						t.Error("halts overlap, or calls are under way")
					}
					diverts := !g.Diverted()
					if diverts {
						g.Divert()
					}
					runtime.Gosched()
					halts.Add(-1)
					destroy(g.Resume())
					if diverts {
						destroy(g.Restore())
					}
				}
			})
		}
		all.Go(func() {
			for range 5 {
				runtime.Gosched()
			}
			_, drained := g.Close()
			destroy(drained)
		})
		all.Wait()
		require.EqualValues(t, 1, destroyed.Load())
		seen := map[uint64]bool{}
		for _, list := range numbers {
			for i, n := range list {
				require.False(t, seen[n] || i > 0 && n <= list[i-1])
				seen[n] = true
			}
		}
	}
}
