package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
)

func TestDemoGraph(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plain := try(t.Context(), simulated(1, nil), "demo")
		r := try(t.Context(), simulated(1, nil), "demo -graph")
		assert.Equal(t, exitOK, r.code, r.stderr)
		assert.Contains(t, r.stdout, "\none graph of 176 nodes, launched 3 times, each checked; the times are of the last launch\n")
		assert.NotContains(t, plain.stdout, "graph")
		const table = "\n\nstream "
		_, want, _ := strings.Cut(withoutTimes(plain.stdout), table)
		_, got, _ := strings.Cut(withoutTimes(r.stdout), table)
		assert.Equal(t, want, got)
	})
}

// TestDemoGraphLaunches counts what reaches the driver: all of the pipeline is in
// the graph, and nothing beside it.
func TestDemoGraphLaunches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kernels, graphs, allocs := 0, 0, 0
		r := try(t.Context(), simulated(1, func(_ *cudatest.GPU, api *driver.API) {
			graphLaunch, alloc := api.GraphLaunch, api.MemAllocFromPoolAsync
			onLaunches(api, func(batch int, _ driver.Stream) bool {
				kernels = batch + 1
				return true
			})
			api.GraphLaunch = func(x driver.GraphExec, s driver.Stream) driver.Result {
				graphs++
				return graphLaunch(x, s)
			}
			api.MemAllocFromPoolAsync = func(bytes uint64, p driver.MemPool, s driver.Stream) (driver.DevicePtr, driver.Result) {
				allocs++
				return alloc(bytes, p, s)
			}
		}), "demo -json -graph -batches 3 -size 1KiB")
		require.Equal(t, exitOK, r.code, r.stderr)
		var got output
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
		// Of each batch: its stamp, its matrix, and its bytes in; the product, poison
		// for its matrix, and the product out; the bytes on, the stamp out, and poison
		// for both; and the bytes out. Each stage has two events. Batch 1 is held by
		// some copies, and all of it has two events.
		const each = 1 + 1 + (1 + 2) + (1 + 2) + 1 + 1 + (1 + 2) + 1 + (1 + 2) + 1 + (1 + 2)
		assert.Equal(t, &graphFacts{Nodes: 3*each + (delay + 2) + 2, Launches: 3}, got.Graph)
		assert.Equal(t, 3, kernels, "a kernel was launched beside the graph")
		assert.Equal(t, launches, graphs)
		assert.Equal(t, slots+1, allocs)
	})
}

// TestDemoGraphTimes lets only the first launch take long.
func TestDemoGraphTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := try(t.Context(), simulated(1, func(gpu *cudatest.GPU, api *driver.API) {
			onLaunches(api, func(batch int, s driver.Stream) bool {
				if batch == 0 {
					time.AfterFunc(time.Second, gpu.Hold(cudatest.Handle(s)))
				}
				return true
			})
		}), "demo -json -graph -size 1KiB")
		require.Equal(t, exitOK, r.code, r.stderr)
		assert.GreaterOrEqual(t, time.Since(start), time.Second)
		var got output
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
		assert.Equal(t, "product", got.Stages[1].Stage)
		assert.Less(t, got.Stages[1].MS, 1.0)
		assert.Greater(t, got.Stages[1].MS, 0.0)
	})
}

// TestDemoGraphChecksEachLaunch loses one launch: what came back of the one
// before must not pass for its result.
func TestDemoGraphChecksEachLaunch(t *testing.T) {
	for n, says := range []string{"launch 1 of 3: batch 0: ", "launch 2 of 3: batch 0: ", "launch 3 of 3: batch 0: "} {
		synctest.Test(t, func(t *testing.T) {
			r := try(t.Context(), simulated(2, func(_ *cudatest.GPU, api *driver.API) {
				launch, seen := api.GraphLaunch, 0
				api.GraphLaunch = func(x driver.GraphExec, s driver.Stream) driver.Result {
					if seen++; seen == n+1 {
						return driver.Success
					}
					return launch(x, s)
				}
			}), "demo -graph -size 1KiB")
			assert.Equal(t, exitFailed, r.code)
			assert.Contains(t, r.stderr, says+"1024 of 1024 bytes are wrong, the first at 0: 0xff instead of ")
			assert.NotContains(t, r.stdout, "graph")
		})
	}
}

// TestReplayForgetsResults looks at the host's memory when a graph is launched.
func TestReplayForgetsResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := *cudatest.New(cudatest.Config{}).API()
		var p *pipeline
		launch, seen := api.GraphLaunch, 0
		api.GraphLaunch = func(x driver.GraphExec, s driver.Stream) driver.Result {
			seen++
			for i := range p.batches {
				for _, b := range p.result[i].Slice() {
					assert.Equal(t, byte(poison), b)
				}
				for _, w := range p.stamps[i].Slice() {
					assert.Equal(t, uint32(poison), w)
				}
				for _, x := range p.products[i].Slice() {
					assert.NotEqual(t, x, x, "a number")
				}
			}
			return launch(x, s)
		}
		drv, err := cuda.OpenDriver(&api)
		require.NoError(t, err)
		dev, err := drv.OpenDevice(0)
		require.NoError(t, err)
		p, err = newPipeline([]*cuda.Device{dev}, plan{batches: 3, size: 10, n: 3, graph: true})
		require.NoError(t, err)
		require.NoError(t, p.settle(t.Context()))
		require.NoError(t, p.replay(t.Context()))
		require.Equal(t, launches, seen)
		require.NoError(t, p.close())
		require.Empty(t, leftovers(drv))
	})
}

// TestDemoGraphReportsErrors makes one driver function fail.
func TestDemoGraphReportsErrors(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(*driver.API)
		says string
	}{
		"begin": {func(api *driver.API) {
			api.StreamBeginCapture = func(driver.Stream, driver.CaptureMode) driver.Result { return driver.ErrorNotPermitted }
		}, "failed: cuda: stream capture: CUDA_ERROR_NOT_PERMITTED"},
		"copy": {func(api *driver.API) {
			failingCopies(api, 2)
		}, "failed: batch 0: host to device: cuda: copy: CUDA_ERROR_INVALID_VALUE"},
		"fork": {func(api *driver.API) { // the driver says that a stream is in the capture, which it is not
			dropWaits(lost{edge{copyIn, work}, nil})(nil, api)
		}, "failed: batch 0: host to device: cuda: event record: CUDA_ERROR_ILLEGAL_STATE"},
		"end": {func(api *driver.API) {
			end := api.StreamEndCapture
			api.StreamEndCapture = func(s driver.Stream) (driver.Graph, driver.Result) {
				g, _ := end(s)
				api.GraphDestroy(g)
				return 0, driver.ErrorStreamCaptureUnjoined
			}
		}, "failed: cuda: stream capture: CUDA_ERROR_STREAM_CAPTURE_UNJOINED"},
		"nodes": {func(api *driver.API) {
			api.GraphGetNodes = func(driver.Graph, unsafe.Pointer) (uint64, driver.Result) { return 0, driver.ErrorInvalidValue }
		}, "failed: cuda: graph nodes: CUDA_ERROR_INVALID_VALUE"},
		"instantiate": {func(api *driver.API) {
			api.GraphInstantiateWithFlags = func(driver.Graph, uint64) (driver.GraphExec, driver.Result) {
				return 0, driver.ErrorOutOfMemory
			}
		}, "failed: cuda: graph instantiate: CUDA_ERROR_OUT_OF_MEMORY"},
		"launch": {func(api *driver.API) {
			launch, n := api.GraphLaunch, 0
			api.GraphLaunch = func(x driver.GraphExec, s driver.Stream) driver.Result {
				if n++; n == 2 {
					return driver.ErrorInvalidValue
				}
				return launch(x, s)
			}
		}, "failed: launch 2 of 3: cuda: graph launch: CUDA_ERROR_INVALID_VALUE"},
		"close": {func(api *driver.API) {
			destroy := api.GraphExecDestroy
			api.GraphExecDestroy = func(x driver.GraphExec) driver.Result {
				destroy(x)
				return driver.ErrorInvalidValue
			}
		}, "failed: closing: cuda: graph close: CUDA_ERROR_INVALID_VALUE"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := try(t.Context(), simulated(1, func(_ *cudatest.GPU, api *driver.API) { c.fail(api) }), "demo -graph -size 1KiB")
				assert.Equal(t, exitFailed, r.code)
				assert.Contains(t, r.stderr, c.says)
				assert.Equal(t, 1, strings.Count(r.stderr, "\n"), "%s", r.stderr)
				assert.NotContains(t, r.stdout, "ok")
			})
		})
	}
}

// TestDemoGraphInterrupted ends the context while work is captured, and while a
// launch runs.
func TestDemoGraphInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := try(ctx, simulated(1, onCopy(1, func(*driver.API, driver.DevicePtr, driver.DevicePtr, driver.Stream) { cancel() })), "demo -graph -size 1KiB")
		assert.Equal(t, exitFailed, r.code)
		assert.Equal(t, "purecuda demo (simulated): failed: interrupted\n", r.stderr)
	})
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := interrupted(t, "demo -graph -size 256KiB", grace/2)
		assert.Equal(t, exitFailed, r.code)
		assert.Equal(t, "purecuda demo (simulated): failed: interrupted\n", r.stderr)
		assert.GreaterOrEqual(t, time.Since(start), time.Second+grace/2, "memory was freed while it was in use")
	})
}
