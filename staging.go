package cuda

import (
	"context"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

// staging is a device's pinned memory through which Go's own slices are copied:
// the driver must not see a Go pointer that it might keep. Its chunks are made
// when they are first needed and kept until the process ends, because freeing
// pinned memory stops all enqueueing until the device is idle.
type staging struct {
	mu   sync.Mutex
	idle []*chunk // a copy may still use them; their events tell
	made int
}

// chunk is a piece of staging memory. Its event is recorded behind the copy that
// used it last.
type chunk struct {
	at    driver.DevicePtr
	bytes []byte
	event *handle
}

const (
	chunkSize = 1 << 20
	maxChunks = 8

	shortestNap = 20 * time.Microsecond
	longestNap  = time.Millisecond
)

// take returns a chunk that no copy uses; the caller puts it back. Without wait it
// returns nil at once if there is none. Which will be free first nobody knows: a
// stream may be held up for long, so all are asked again and again.
func (st *staging) take(ctx context.Context, op string, d *Device, wait bool) (*chunk, error) {
	for nap := shortestNap; ; nap = min(nap+nap/4, longestNap) {
		c, err := st.free(op, d)
		if c != nil || err != nil || !wait {
			return c, err
		}
		if ctx == nil {
			return nil, nilContext(op)
		}
		select {
		case <-ctx.Done():
			return nil, &Error{Op: op, Err: ctx.Err()}
		case <-time.After(nap):
		}
	}
}

// free takes a chunk that no copy uses, or makes one; nil if there are enough and
// all are in use.
func (st *staging) free(op string, d *Device) (*chunk, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for i, c := range st.idle {
		switch r := c.event.queryEventRelaxed(); r {
		case driver.Success:
			st.idle = slices.Delete(st.idle, i, i+1)
			return c, nil
		case driver.ErrorNotReady:
		default:
			return nil, failure(op, r)
		}
	}
	if st.made == maxChunks {
		return nil, nil
	}
	c, err := d.newChunk(op)
	if err == nil {
		st.made++
	}
	return c, err
}

// put gives a chunk back.
func (st *staging) put(c *chunk) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.idle = append(st.idle, c)
}

func (d *Device) newChunk(op string) (*chunk, error) {
	api := d.driver.api
	var p unsafe.Pointer
	var e driver.Event
	r := d.driver.relaxed(func() driver.Result {
		return d.bound(func(api *driver.API) (r driver.Result) {
			if p, r = api.MemHostAlloc(chunkSize, driver.MemHostAllocPortable); r != driver.Success {
				return r
			}
			if e, r = api.EventCreate(driver.EventDisableTiming); r != driver.Success {
				api.MemFreeHost(p)
			}
			return r
		})
	})
	if r != driver.Success {
		return nil, failure(op, r)
	}
	api.Kept.Add(uint64(uintptr(p)))
	api.Kept.Add(uint64(e))
	return &chunk{
		at:    driver.HostPtr(p),
		bytes: unsafe.Slice((*byte)(p), chunkSize),
		event: &handle{dev: d, kind: kindEvent, native: uint64(e)},
	}, nil
}

// copy enqueues on s a copy between c and the device memory of h. If that fails, c
// is given back. A chunk behind whose copy no event could be recorded is given up: nobody
// could tell when it is free.
func (st *staging) copy(s *Stream, c *chunk, h *handle, to, from driver.DevicePtr, n int) driver.Result {
	r := s.callFor(h, h, func(api *driver.API, st driver.Stream) driver.Result { return api.MemcpyAsync(to, from, uint64(n), st) })
	if r != driver.Success {
		st.put(c)
		return r
	}
	h.usedOn(s, nil)
	r = s.call(func(api *driver.API, st driver.Stream) driver.Result {
		return api.EventRecord(driver.Event(c.event.native), st)
	})
	if r != driver.Success {
		st.mu.Lock()
		defer st.mu.Unlock()
		st.made--
	}
	return r
}

// asBytes returns the memory of s.
func asBytes[T Element](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), uintptr(len(s))*unsafe.Sizeof(*new(T)))
}
