package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
)

// The tests run in virtual time, where enqueueing takes none: what the streams
// are told to do before the first copy has ended is the same each time.

func TestDemo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := try(t.Context(), simulated(1, nil), "demo")
		r.stdout = withoutTimes(r.stdout)
		assert.Equal(t, result{exitOK, `driver: simulated GPU (no driver library was found; "purecuda info -driver cuda" says more)

stream   device  stage              amount     ms (simulated)  rate (simulated)
copy in  0       host to device     32 MiB N N GB/s
work     0       product            4.2 MFLOP N N GFLOP/s
work     0       device to device   32 MiB N N TB/s
work     0       fill               32 MiB N N TB/s
work     0       delay on purpose   16 MiB N N GB/s
work     0       device to host     32 MiB N N GB/s
all      0       from start to end  32 MiB N N GB/s

products: each element within n·2⁻²⁴·|row|·|column| of a float64 reference, the worst at N of that
The times are of a simulation, in which the host does the work; they say nothing about any GPU.
ok (simulated): 8 batches of 4 MiB and a 64×64 matrix through 2 streams of 1 device, every byte and every product right, nothing left open
`, ""}, r)
	})
}

// withoutTimes puts N for the times and rates of a table. Fused or not, the sums
// of the products are not the same everywhere, and so neither is the worst.
func withoutTimes(s string) string {
	s = regexp.MustCompile(`  +\d+\.\d+ +\d+\.\d+ `).ReplaceAllString(s, " N N ")
	return regexp.MustCompile(`the worst at 0\.\d+`).ReplaceAllString(s, "the worst at N")
}

func TestDemoOnTwoDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := try(t.Context(), simulated(2, nil), "demo -driver sim -batches 5 -size 100001")
		assert.Equal(t, exitOK, r.code, r.stderr)
		assert.Contains(t, r.stdout, "\npeer     1       from device 0 ")
		assert.Contains(t, r.stdout, "\npeer     1       to device 0 ")
		assert.Contains(t, r.stdout, "ok (simulated): 5 batches of 97.7 KiB and a 64×64 matrix through 3 streams of 2 devices")
		assert.Contains(t, r.stdout, "\npeer access: devices 0 and 1 reach each other's memory directly\n")
	})
}

func TestDemoSizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, line := range []string{"-batches 1 -size 1", "-batches 2 -size 1KiB", "-batches 251 -size 3 -matrix 3", "-batches 3 -size 1MiB",
			"-batches 3 -size 1 -matrix 1", "-batches 2 -size 1 -matrix 65", "-batches 1 -size 1 -matrix 130"} {
			for _, mode := range []string{"demo ", "demo -graph "} {
				r := try(t.Context(), simulated(2, nil), mode+line)
				assert.Equal(t, exitOK, r.code, "%s: %s", line, r.stderr)
			}
		}
	})
}

// TestDemoOfReal checks that what is not simulated is not said to be.
func TestDemoOfReal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := try(t.Context(), nvidia(cudatest.Config{Name: "GPU"}), "demo -size 1KiB -batches 1")
		assert.Equal(t, exitOK, r.code, r.stderr)
		_, rest, _ := strings.Cut(r.stdout, "\n") // the first line names the library
		assert.NotContains(t, rest, "simulat")
		assert.Contains(t, rest, "ok: 1 batch of 1 KiB and a 256×256 matrix")
	})
}

// output is what -json writes, as far as it is checked.
type output struct {
	OK               bool
	Error            string
	Simulated        bool
	Clock            string
	Batches          int
	PeerAccess       *bool   `json:"peer_access"`
	MatrixRows       int     `json:"matrix_rows"`
	ProductTolerance string  `json:"product_tolerance"`
	ProductWorst     float64 `json:"product_worst"`
	Graph            *graphFacts
	Stages           []row
}

func TestDemoJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := try(t.Context(), simulated(2, nil), "demo -json -batches 3 -size 1MiB")
		assert.Equal(t, exitOK, r.code)
		assert.Empty(t, r.stderr)
		var got output
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
		assert.True(t, got.OK)
		assert.True(t, got.Simulated)
		assert.Contains(t, got.Clock, "simulated")
		assert.Equal(t, 3, got.Batches)
		require.Len(t, got.Stages, 10)
		assert.Equal(t, uint64(3<<20), got.Stages[0].Bytes)
		assert.InDelta(t, 3*(1<<20)/50e6+3*0.002, got.Stages[0].MS, 0.01)
		assert.Equal(t, row{Stream: "work", Stage: "product", FLOP: 3 * 2 * 64 * 64 * 64, MS: got.Stages[1].MS, GFLOPps: got.Stages[1].GFLOPps}, got.Stages[1])
		assert.InDelta(t, 3*(0.002+2*64*64*64/50e9), got.Stages[1].MS, 0.001)
		assert.InEpsilon(t, float64(got.Stages[1].FLOP)/got.Stages[1].MS/1e6, got.Stages[1].GFLOPps, 1e-9)
		assert.Equal(t, 64, got.MatrixRows)
		assert.Contains(t, got.ProductTolerance, "|row|")
		assert.Greater(t, got.ProductWorst, 0.0)
		assert.Less(t, got.ProductWorst, 1.0)
		assert.Nil(t, got.Graph)
		assert.True(t, *got.PeerAccess)

		r = try(t.Context(), simulated(1, dropWaits(lost{edge{work, copyIn}, nil})), "demo -json -size 512KiB")
		assert.Equal(t, exitFailed, r.code)
		got = output{}
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
		assert.False(t, got.OK)
		assert.True(t, got.Simulated)
		assert.Contains(t, r.stderr, got.Error)
		assert.NotEmpty(t, got.Error)
		assert.Nil(t, got.PeerAccess, "there is one device")
	})
}

// TestDemoWithoutPeerAccess runs on devices that cannot reach each other, and on
// two that can.
func TestDemoWithoutPeerAccess(t *testing.T) {
	const line = " -batches 3 -size 1KiB -matrix 5"
	for _, mode := range []string{"demo", "demo -graph"} {
		synctest.Test(t, func(t *testing.T) {
			from := nvidia(cudatest.Config{Devices: 2, NoPeerAccess: true})
			r := try(t.Context(), from, mode+line)
			assert.Equal(t, exitOK, r.code, r.stderr)
			assert.Contains(t, r.stdout, "\npeer access: none, copies between the devices go through the host (cuda: peer access: ")
			assert.Contains(t, r.stdout, "through 3 streams of 2 devices")

			r = try(t.Context(), from, mode+line+" -json")
			assert.Equal(t, exitOK, r.code, r.stderr)
			assert.Contains(t, r.stdout, `"peer_access": false`)
		})
	}
}

func TestDemoEnablesPeerAccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var contexts []driver.Context
		var pools []int32
		r := try(t.Context(), simulated(2, func(_ *cudatest.GPU, api *driver.API) {
			enable, access := api.CtxEnablePeerAccess, api.MemPoolSetAccess
			api.CtxEnablePeerAccess = func(peer driver.Context, flags uint32) driver.Result {
				contexts = append(contexts, peer)
				return enable(peer, flags)
			}
			api.MemPoolSetAccess = func(p driver.MemPool, a driver.MemAccess, n uint64) driver.Result {
				pools = append(pools, a.LocationID)
				return access(p, a, n)
			}
		}), "demo -size 1KiB")
		assert.Equal(t, exitOK, r.code, r.stderr)
		require.Len(t, contexts, 2)
		assert.NotEqual(t, contexts[0], contexts[1])
		assert.ElementsMatch(t, []int32{0, 1}, pools)
	})
}

func TestDemoWithoutMemoryPools(t *testing.T) {
	for _, mode := range []string{"demo", "demo -graph"} {
		synctest.Test(t, func(t *testing.T) {
			r := try(t.Context(), nvidia(cudatest.Config{Devices: 2, NoMemoryPools: true}), mode+" -batches 5 -size 1KiB -matrix 5")
			assert.Equal(t, exitOK, r.code, r.stderr)
		})
	}
}

// TestDemoFreesInOrder checks what memory from the pools is good for: that of a
// batch is closed while the work that uses it goes on, it is given back at once in
// the order of its stream, and no stream waits for more than it would anyway.
func TestDemoFreesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const batches = 5
		waits, allocs, frees, during, launched := make(map[edge]int), 0, 0, 0, 0
		r := try(t.Context(), simulated(1, func(_ *cudatest.GPU, api *driver.API) {
			onWaits(api, func(e edge) bool {
				waits[e]++
				return true
			})
			alloc, free, plain := api.MemAllocFromPoolAsync, api.MemFreeAsync, api.MemFree
			api.MemAllocFromPoolAsync = func(bytes uint64, p driver.MemPool, s driver.Stream) (driver.DevicePtr, driver.Result) {
				allocs++
				return alloc(bytes, p, s)
			}
			api.MemFreeAsync = func(at driver.DevicePtr, s driver.Stream) driver.Result {
				frees++
				if launched > 0 && launched < batches {
					during++
					assert.Equal(t, driver.ErrorNotReady, api.StreamQuery(s), "something waited")
				}
				return free(at, s)
			}
			onLaunches(api, func(batch int, _ driver.Stream) bool {
				launched = batch + 1
				return true
			})
			api.MemFree = func(at driver.DevicePtr) driver.Result {
				assert.Equal(t, batches, launched, "this waits for the device")
				return plain(at)
			}
		}), "demo -size 1MiB -batches 5")
		assert.Equal(t, exitOK, r.code, r.stderr)
		// Anew: of the matrices all but the first ones, and each product.
		assert.Equal(t, slots+1+(batches-slots)+batches, allocs)
		assert.Equal(t, allocs, frees)
		assert.Equal(t, (batches-slots)+(batches-1), during, "but the first product, which is closed before a launch")
		// For the order of the work, and none for a free.
		assert.Equal(t, 1+(batches-slots), waits[edge{copyIn, work}])
		assert.Equal(t, 2*batches+1, waits[edge{work, copyIn}])
	})
}

func TestDecimal(t *testing.T) {
	for n, want := range map[float64]string{
		0: "0.0 ", 1: "1.0 ", 999.94: "999.9 ", 999.95: "1.0 k", 1e6: "1.0 M", 4194304: "4.2 M",
		4.8e12: "4.8 T", 1.2e15: "1.2 P", 1e21: "1000000.0 P",
	} {
		assert.Equal(t, want, decimal(n))
	}
}
