package main

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

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
		r.stdout = regexp.MustCompile(` +\d+\.\d+`).ReplaceAllString(r.stdout, " N")
		assert.Equal(t, result{exitOK, `driver: simulated GPU (no driver library was found; "purecuda info -driver cuda" says more)

stream   device  stage              bytes   ms (simulated)  GB/s (simulated)
copy in  0       host to device     32 MiB N N
work     0       device to device   32 MiB N N
work     0       fill               32 MiB N N
work     0       delay on purpose   16 MiB N N
work     0       device to host     32 MiB N N
all      0       from start to end  32 MiB N N

The times are of a simulation, in which the host does the copying; they say nothing about any GPU.
ok (simulated): 8 batches of 4 MiB through 2 streams of 1 device, every byte right, nothing left open
`, ""}, r)
	})
}

func TestDemoOnTwoDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := try(t.Context(), simulated(2, nil), "demo -driver sim -batches 5 -size 100001")
		assert.Equal(t, exitOK, r.code, r.stderr)
		assert.Contains(t, r.stdout, "\npeer     1       from device 0 ")
		assert.Contains(t, r.stdout, "\npeer     1       to device 0 ")
		assert.Contains(t, r.stdout, "ok (simulated): 5 batches of 97.7 KiB through 3 streams of 2 devices")
	})
}

func TestDemoSizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, line := range []string{"-batches 1 -size 1", "-batches 2 -size 1KiB", "-batches 251 -size 3", "-batches 3 -size 1MiB"} {
			r := try(t.Context(), simulated(2, nil), "demo "+line)
			assert.Equal(t, exitOK, r.code, "%s: %s", line, r.stderr)
		}
	})
}

// TestDemoOfReal checks that what is not simulated is not said to be.
func TestDemoOfReal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := try(t.Context(), nvidia(cudatest.Config{Name: "GPU"}), "demo -size 1KiB")
		assert.Equal(t, exitOK, r.code, r.stderr)
		_, rest, _ := strings.Cut(r.stdout, "\n") // the first line names the library
		assert.NotContains(t, rest, "simulat")
		assert.Contains(t, rest, "ok: 16 batches of 1 KiB")
	})
}

func TestDemoJSON(t *testing.T) {
	type output struct {
		OK        bool
		Error     string
		Simulated bool
		Clock     string
		Batches   int
		Stages    []row
	}
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
		require.Len(t, got.Stages, 9)
		assert.Equal(t, uint64(3<<20), got.Stages[0].Bytes)
		assert.InDelta(t, 3*(1<<20)/50e6+3*0.002, got.Stages[0].MS, 0.01)

		r = try(t.Context(), simulated(1, dropWaits(edge{work, copyIn})), "demo -json -size 512KiB")
		assert.Equal(t, exitFailed, r.code)
		got = output{}
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
		assert.False(t, got.OK)
		assert.True(t, got.Simulated)
		assert.Contains(t, r.stderr, got.Error)
		assert.NotEmpty(t, got.Error)
	})
}

// The streams, in the order of their making.
const copyIn, work, peer = 0, 1, 2

// edge is an order between two streams.
type edge struct{ waiter, recorder int }

// dropWaits makes the waits of the edges do nothing.
func dropWaits(edges ...edge) func(*cudatest.GPU, *driver.API) {
	return func(_ *cudatest.GPU, api *driver.API) {
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
			if by, ok := recorder[e]; ok && slices.Contains(edges, edge{number[s], by}) {
				return driver.Success
			}
			return wait(s, e, flags)
		}
	}
}

// TestDemoFindsMissingWaits checks that each order that the pipeline needs is
// one whose absence shows.
func TestDemoFindsMissingWaits(t *testing.T) {
	loaded, reuse := edge{work, copyIn}, edge{copyIn, work}
	sent, returned := edge{peer, work}, edge{work, peer}
	const poisoned = "batch 0: 524288 of 524288 bytes are wrong, the first at 0: 0xff instead of 0x01, which is of no batch"
	for _, c := range []struct {
		name    string
		devices int
		drop    []edge
		says    string
	}{
		{"no order at all", 1, []edge{loaded, reuse}, poisoned},
		{"work does not wait for the copy in", 1, []edge{loaded}, poisoned},
		{"the copy in does not wait for work", 1, []edge{reuse},
			": a buffer was overwritten before it had been read"},
		{"no order at all", 2, []edge{loaded, reuse, sent, returned}, poisoned},
		{"the peer does not wait for work", 2, []edge{sent}, " 524288 of 524288 bytes are wrong"},
		{"work does not wait for the peer", 2, []edge{returned}, poisoned},
	} {
		t.Run(fmt.Sprintf("%s/%d", c.name, c.devices), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := try(t.Context(), simulated(c.devices, dropWaits(c.drop...)), "demo -size 512KiB")
				assert.Equal(t, exitFailed, r.code)
				assert.Contains(t, r.stderr, "purecuda demo (simulated): failed: batch ")
				assert.Contains(t, r.stderr, c.says)
				assert.NotContains(t, r.stdout, "ok")
			})
		})
	}
}

// TestDemoFindsDamage damages one byte of one copy.
func TestDemoFindsDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		copies := 0
		r := try(t.Context(), simulated(1, func(_ *cudatest.GPU, api *driver.API) {
			copyAsync := api.MemcpyAsync
			api.MemcpyAsync = func(dst, src driver.DevicePtr, bytes uint64, s driver.Stream) driver.Result {
				if r := copyAsync(dst, src, bytes, s); r != driver.Success {
					return r
				}
				if copies++; copies == 2 { // of batch 0, from device to device
					return api.MemsetD8Async(dst+1000, 0, 1, s)
				}
				return driver.Success
			}
		}), "demo")
		assert.Equal(t, exitFailed, r.code)
		assert.Contains(t, r.stderr, "batch 0: 1 of 4194304 bytes are wrong, the first at 1000: 0x00 instead of ")
	})
}

func TestDemoFindsLostFill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := try(t.Context(), simulated(1, func(_ *cudatest.GPU, api *driver.API) {
			api.MemsetD32Async = func(driver.DevicePtr, uint32, uint64, driver.Stream) driver.Result { return driver.Success }
		}), "demo")
		assert.Equal(t, exitFailed, r.code)
		assert.Contains(t, r.stderr, "batch 0: its stamp came back as ")
	})
}

// TestDemoReportsErrors makes one driver function fail.
func TestDemoReportsErrors(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(*driver.API)
		says []string
	}{
		"copy": {func(api *driver.API) {
			api.MemcpyAsync = func(driver.DevicePtr, driver.DevicePtr, uint64, driver.Stream) driver.Result {
				return driver.ErrorInvalidValue
			}
		}, []string{"batch 0: host to device: cuda: copy: CUDA_ERROR_INVALID_VALUE"}},
		"device memory": {func(api *driver.API) {
			api.MemAlloc = func(uint64) (driver.DevicePtr, driver.Result) { return 0, driver.ErrorOutOfMemory }
		}, []string{"cuda: buffer alloc: CUDA_ERROR_OUT_OF_MEMORY", "try a smaller -size"}},
		"pinned memory": {func(api *driver.API) {
			alloc, n := api.MemHostAlloc, 0
			api.MemHostAlloc = func(bytes uint64, flags uint32) (p unsafe.Pointer, r driver.Result) {
				if n++; n > 3 {
					return nil, driver.ErrorOutOfMemory
				}
				return alloc(bytes, flags)
			}
		}, []string{"host buffer alloc", "4 MiB of pinned memory in all", "fewer -batches"}},
		"close": {func(api *driver.API) {
			destroy := api.StreamDestroy
			api.StreamDestroy = func(s driver.Stream) driver.Result {
				destroy(s)
				return driver.ErrorInvalidHandle
			}
		}, []string{"closing: cuda: stream close: "}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := try(t.Context(), simulated(1, func(_ *cudatest.GPU, api *driver.API) { c.fail(api) }), "demo -size 256KiB")
				assert.Equal(t, exitFailed, r.code)
				for _, says := range c.says {
					assert.Contains(t, r.stderr, says)
				}
				assert.NotContains(t, r.stdout, "ok")
			})
		})
	}
}

// interrupted runs the demo, which hangs after its first copy and is interrupted
// after a second. The device is let go after another time.
func interrupted(t *testing.T, letGo time.Duration) result {
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, nil)
	defer cancel()
	return try(ctx, simulated(1, func(gpu *cudatest.GPU, api *driver.API) {
		copyAsync, held := api.MemcpyAsync, false
		api.MemcpyAsync = func(dst, src driver.DevicePtr, bytes uint64, s driver.Stream) driver.Result {
			if !held {
				held = true
				time.AfterFunc(time.Second+letGo, gpu.Hold(cudatest.Handle(s)))
			}
			return copyAsync(dst, src, bytes, s)
		}
	}), "demo -size 256KiB")
}

func TestDemoInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := interrupted(t, grace/2)
		assert.Equal(t, exitFailed, r.code)
		assert.Equal(t, "purecuda demo (simulated): failed: interrupted\n", r.stderr)
		assert.NotContains(t, r.stdout, "ok")
		assert.GreaterOrEqual(t, time.Since(start), time.Second+grace/2, "memory was freed while it was in use")
	})
}

func TestDemoInterruptedWhileDeviceHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := interrupted(t, 2*grace)
		assert.Equal(t, exitFailed, r.code)
		assert.Contains(t, r.stderr, "interrupted\nthe device did not finish its work in another 5s, so nothing was closed")
	})
}
