package main

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
)

// TestEachDroppedWaitIsARace drops each wait of the demo in a run of its own. Whatever the results
// are, the simulated GPU must report a race. Two waits guard no memory: the first orders timing
// events only, and at the last one all streams have been joined.
func TestEachDroppedWaitIsARace(t *testing.T) {
	real := func(t *testing.T, f func(t *testing.T)) { f(t) }
	for name, c := range map[string]struct {
		within  func(t *testing.T, f func(t *testing.T))
		devices int
		flag    string
		waits   int
	}{
		"streams":                  {real, 1, "", 24},
		"streams, in virtual time": {synctest.Test, 1, "", 24},
		"graph":                    {real, 1, " -graph", 24},
		"streams, two devices":     {real, 2, "", 40},
		"graph, two devices":       {real, 2, " -graph", 40},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(t *testing.T, dropped int) (waits int, r result, races []string) {
				var gpu *cudatest.GPU
				r = try(t.Context(), simulated(c.devices, func(g *cudatest.GPU, api *driver.API) {
					gpu = g
					onWaits(api, func(edge) bool { waits++; return waits-1 != dropped })
				}), "demo -size 64KiB"+c.flag)
				for _, p := range gpu.Problems() {
					if strings.HasPrefix(p, "race: ") {
						races = append(races, p)
					}
				}
				return waits, r, races
			}
			c.within(t, func(t *testing.T) {
				waits, r, races := run(t, -1)
				require.Zero(t, r.code, r.stderr)
				require.Empty(t, races)
				require.Equal(t, c.waits, waits)
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
