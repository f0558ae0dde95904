package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// TestEachDroppedWaitIsARace drops each wait of the demo in a run of its own. Whatever the results
// are, a race must be reported: by the simulated GPU, and by a table of DetectRaces on top of one
// that does not look for races and on top of NVIDIA's driver. Two waits guard no memory: the
// first orders timing events only, and at the last one all streams have been joined.
func TestEachDroppedWaitIsARace(t *testing.T) {
	realTime := func(t *testing.T, f func(t *testing.T)) { f(t) }
	simulates := func(devices int) func(t *testing.T) finder {
		return func(*testing.T) finder {
			gpu := cudatest.New(cudatest.Config{Devices: devices})
			return finder{*gpu.API(), func() []string { return races(gpu) }}
		}
	}
	detects := func(devices int) func(t *testing.T) finder {
		return func(*testing.T) finder {
			return newFinder(cudatest.New(cudatest.Config{Devices: devices, AllowRaces: true}).API())
		}
	}
	onGPU := func(t *testing.T) finder { return newFinder(testgpu.RealDriver(t).API()) }
	for name, c := range map[string]struct {
		within func(t *testing.T, f func(t *testing.T))
		find   func(t *testing.T) finder
		flag   string
		waits  int // 0: it depends on how many devices there are
	}{
		"streams":                      {realTime, simulates(1), "", 24},
		"streams, in virtual time":     {synctest.Test, simulates(1), "", 24},
		"graph":                        {realTime, simulates(1), " -graph", 24},
		"streams, two devices":         {realTime, simulates(2), "", 40},
		"graph, two devices":           {realTime, simulates(2), " -graph", 40},
		"streams, detected":            {realTime, detects(1), "", 24},
		"graph, two devices, detected": {realTime, detects(2), " -graph", 40},
		"streams, detected on a GPU":   {realTime, onGPU, "", 0},
		"graph, detected on a GPU":     {realTime, onGPU, " -graph", 0},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(t *testing.T, dropped int) (waits int, r result, races []string) {
				find := c.find(t)
				onWaits(&find.API, func(edge) bool { waits++; return waits-1 != dropped })
				open := func() (*cuda.Driver, error) { return cuda.OpenDriver(&find.API) }
				r = try(t.Context(), sources{simulated: open}, "demo -driver sim -size 64KiB"+c.flag)
				return waits, r, find.races()
			}
			c.within(t, func(t *testing.T) {
				waits, r, races := run(t, -1)
				require.Zero(t, r.code, r.stderr)
				require.Empty(t, races)
				if c.waits > 0 {
					require.Equal(t, c.waits, waits)
				}
				c.waits = waits
			})
			for dropped := range c.waits {
				t.Run(fmt.Sprint(dropped), func(t *testing.T) {
					c.within(t, func(t *testing.T) {
						_, r, races := run(t, dropped)
						if strings.Contains(r.stderr, "ILLEGAL_STATE") || strings.Contains(r.stderr, "UNJOINED") {
							return // a capture that lacks a stream has no graph
						}
						idle := dropped == 0 || dropped == c.waits-1
						assert.Equal(t, idle, len(races) == 0, "%v\n%s", races, r.stderr)
						for _, race := range races {
							assert.Regexp(t, `^race: .* at (enqueue|memory)\.go:\d+.* and .* at (enqueue|memory)\.go:\d+.* are not ordered`, race)
						}
					})
				})
			}
		})
	}
}

// finder is a table, and the races that were found when a run has ended.
type finder struct {
	driver.API
	races func() []string
}

// newFinder returns a table of DetectRaces.
func newFinder(api *driver.API) finder {
	var mu sync.Mutex
	var found []string
	f := finder{API: *cuda.DetectRaces(api), races: func() []string {
		mu.Lock()
		defer mu.Unlock()
		return found
	}}
	f.Races.On(func(report string) {
		mu.Lock()
		defer mu.Unlock()
		found = append(found, report)
	})
	return f
}

// races returns the races that a simulated GPU has found.
func races(gpu *cudatest.GPU) (races []string) {
	for _, p := range gpu.Problems() {
		if strings.HasPrefix(p, "race: ") {
			races = append(races, p)
		}
	}
	return races
}
