package main

import (
	"fmt"
	"testing"
	"testing/synctest"
	"unsafe"

	"github.com/stretchr/testify/assert"

	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
)

// The streams, in the order of their making.
const copyIn, work, peer = 0, 1, 2

// edge is an order between two streams.
type edge struct{ waiter, recorder int }

// lost is some of the waits of an edge, which are numbered from 0.
type lost struct {
	edge
	these func(n int) bool // nil: all
}

// dropWaits makes waits do nothing.
func dropWaits(drop ...lost) func(*cudatest.GPU, *driver.API) {
	return func(_ *cudatest.GPU, api *driver.API) {
		seen := make(map[edge]int)
		onWaits(api, func(e edge) bool {
			n := seen[e]
			seen[e]++
			for _, l := range drop {
				if l.edge == e && (l.these == nil || l.these(n)) {
					return false
				}
			}
			return true
		})
	}
}

// onWaits calls f at each wait for a recorded event, which does nothing where f
// is false.
func onWaits(api *driver.API, f func(edge) bool) {
	number := make(map[driver.Stream]int)
	recorder := make(map[driver.Event]int)
	create, record, wait := api.StreamCreateWithPriority, api.EventRecord, api.StreamWaitEvent
	api.StreamCreateWithPriority = func(flags uint32, priority int32) (driver.Stream, driver.Result) {
		s, r := create(flags, priority)
		number[s] = len(number)
		return s, r
	}
	api.EventRecord = func(e driver.Event, s driver.Stream) driver.Result {
		recorder[e] = number[s]
		return record(e, s)
	}
	api.StreamWaitEvent = func(s driver.Stream, e driver.Event, flags uint32) driver.Result {
		if by, ok := recorder[e]; ok && !f(edge{number[s], by}) {
			return driver.Success
		}
		return wait(s, e, flags)
	}
}

// What the waits of the edges are for, with simulatedBatches batches. The work
// stream waits for each batch's matrix and for its bytes, and at the end once
// more.
const loads = 2 * simulatedBatches

func forMatrix(n int) bool { return n < loads && n%2 == 0 }
func forBytes(n int) bool  { return n < loads && n%2 == 1 }
func butFirst(n int) bool  { return n > 0 }
func butLastOf(all int) func(int) bool {
	return func(n int) bool { return n < all-1 }
}

const (
	poisonedBytes   = "batch 0: 524288 of 524288 bytes are wrong, the first at 0: 0xff instead of 0x01, which is of no batch"
	poisonedProduct = "batch 0: 4096 of 4096 elements of its product are wrong, the first in row 0, column 0: NaN instead of "
	overwritten     = ": a buffer was overwritten before it had been read"
)

// TestDemoFindsMissingWaits checks that each order that the pipeline needs is
// one whose absence shows. In a graph the first wait of a stream brings it into
// the capture, and the last brings it back: what is lost is what is between.
func TestDemoFindsMissingWaits(t *testing.T) {
	loaded, reuse := edge{work, copyIn}, edge{copyIn, work}
	sent, returned := edge{peer, work}, edge{work, peer}
	for _, c := range []struct {
		name    string
		devices int
		drop    []lost
		inGraph []lost // the same there
		says    string
	}{
		{"no order at all", 1, []lost{{loaded, nil}, {reuse, nil}},
			[]lost{{loaded, butLastOf(loads + 1)}, {reuse, butFirst}}, poisonedBytes},
		{"work does not wait for the copy in", 1, []lost{{loaded, nil}},
			[]lost{{loaded, butLastOf(loads + 1)}}, poisonedBytes},
		{"the product does not wait for its matrix", 1, []lost{{loaded, forMatrix}},
			[]lost{{loaded, forMatrix}}, poisonedProduct},
		{"the bytes are not waited for", 1, []lost{{loaded, forBytes}},
			[]lost{{loaded, forBytes}}, poisonedBytes},
		{"the copy in does not wait for work", 1, []lost{{reuse, nil}},
			[]lost{{reuse, butFirst}}, overwritten},
		{"no order at all", 2, []lost{{loaded, nil}, {reuse, nil}, {sent, nil}, {returned, nil}},
			[]lost{{loaded, butLastOf(loads + 1)}, {reuse, butFirst}, {sent, butFirst}, {returned, butLastOf(simulatedBatches)}}, poisonedBytes},
		{"the peer does not wait for work", 2, []lost{{sent, nil}},
			[]lost{{sent, butFirst}}, " 524288 of 524288 bytes are wrong"},
		{"work does not wait for the peer", 2, []lost{{returned, nil}},
			[]lost{{returned, butLastOf(simulatedBatches)}}, poisonedBytes},
	} {
		for _, mode := range []struct {
			name, flag, says string
			drop             []lost
		}{
			{"streams", "", "purecuda demo (simulated): failed: batch ", c.drop},
			{"graph", " -graph", "purecuda demo (simulated): failed: launch 1 of 3: batch ", c.inGraph},
		} {
			t.Run(fmt.Sprintf("%s/%d/%s", c.name, c.devices, mode.name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := try(t.Context(), simulated(c.devices, dropWaits(mode.drop...)), "demo -size 512KiB"+mode.flag)
					assert.Equal(t, exitFailed, r.code)
					assert.Contains(t, r.stderr, mode.says)
					assert.Contains(t, r.stderr, c.says)
					assert.NotContains(t, r.stdout, "ok")
				})
			})
		}
	}
}

// onCopy calls f before copy n of the demo, from 0: of the weights, and then of
// each batch the matrix in, the bytes in, the product out, and the bytes on.
func onCopy(n int, f func(api *driver.API, dst, src driver.DevicePtr, s driver.Stream)) func(*cudatest.GPU, *driver.API) {
	return func(_ *cudatest.GPU, api *driver.API) {
		copyAsync, copies := api.MemcpyAsync, 0
		api.MemcpyAsync = func(dst, src driver.DevicePtr, bytes uint64, s driver.Stream) driver.Result {
			if copies == n {
				f(api, dst, src, s)
			}
			copies++
			return copyAsync(dst, src, bytes, s)
		}
	}
}

// onLaunches calls f before each product, and before the launch of nothing as if
// that were batch -1. Where f is false the kernel is not launched.
func onLaunches(api *driver.API, f func(batch int, s driver.Stream) bool) {
	launch, n := api.LaunchKernel, -2
	api.LaunchKernel = func(k driver.Func, gx, gy, gz, bx, by, bz, shared uint32, s driver.Stream, params, extra unsafe.Pointer) driver.Result {
		if n++; !f(n, s) {
			return driver.Success
		}
		return launch(k, gx, gy, gz, bx, by, bz, shared, s, params, extra)
	}
}

// TestDemoFindsDamage damages a little of what a copy takes.
func TestDemoFindsDamage(t *testing.T) {
	for name, c := range map[string]struct {
		copy   int
		offset driver.DevicePtr
		bytes  uint64
		says   string
	}{
		"byte":    {4, 1000, 1, "batch 0: 1 of 65536 bytes are wrong, the first at 1000: 0x00 instead of "},
		"product": {3, 4 * 70, 4, "batch 0: 1 of 4096 elements of its product are wrong, the first in row 1, column 6: "},
	} {
		for _, mode := range []string{"demo", "demo -graph"} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := try(t.Context(), simulated(1, onCopy(c.copy, func(api *driver.API, _, src driver.DevicePtr, s driver.Stream) {
						assert.Equal(t, driver.Success, api.MemsetD8Async(src+c.offset, 0, c.bytes, s))
					})), mode+" -size 64KiB")
					assert.Equal(t, exitFailed, r.code)
					assert.Contains(t, r.stderr, c.says)
				})
			})
		}
	}
}

func TestDemoFindsLostFill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := try(t.Context(), simulated(1, func(_ *cudatest.GPU, api *driver.API) {
			fill := api.MemsetD32Async
			api.MemsetD32Async = func(dst driver.DevicePtr, v uint32, n uint64, s driver.Stream) driver.Result {
				if v == stampOf(0) {
					return driver.Success
				}
				return fill(dst, v, n, s)
			}
		}), "demo -size 1KiB")
		assert.Equal(t, exitFailed, r.code)
		assert.Contains(t, r.stderr, "batch 0: its stamp came back as 0xff instead of 0x100")
	})
}

// TestDemoFindsLostProduct loses the product of one batch, so that what comes
// back is what the memory held before.
func TestDemoFindsLostProduct(t *testing.T) {
	for _, mode := range []string{"demo", "demo -graph"} {
		synctest.Test(t, func(t *testing.T) {
			r := try(t.Context(), simulated(1, func(_ *cudatest.GPU, api *driver.API) {
				onLaunches(api, func(batch int, _ driver.Stream) bool { return batch != 2 })
			}), mode+" -size 1KiB")
			assert.Equal(t, exitFailed, r.code)
			assert.Contains(t, r.stderr, "batch 2: 4096 of 4096 elements of its product are wrong")
		})
	}
}
