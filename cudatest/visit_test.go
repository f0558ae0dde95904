package cudatest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

// crash returns what a call panics with.
func crash(call func()) (what string) {
	defer func() {
		if x := recover(); x != nil {
			what = fmt.Sprint(x)
		}
	}()
	call()
	return ""
}

// during calls f while another goroutine is in the call of fn that first makes.
func during(b *bed, fn string, first, f func()) {
	in, out := make(chan struct{}), make(chan struct{})
	var held atomic.Bool // and later calls of fn are not
	b.gpu.main.linger = func(v *visit) {
		if v.fn == fn && held.CompareAndSwap(false, true) {
			close(in)
			<-out
		}
	}
	var all sync.WaitGroup
	all.Go(first)
	<-in
	defer all.Wait()
	defer close(out)
	f()
}

func TestTwoThreadsInACapture(t *testing.T) {
	type calls = map[string]func(c *capturing)
	first := calls{
		"EventRecord":          func(c *capturing) { c.EventRecord(c.plain, c.origin) },
		"StreamWaitEvent":      func(c *capturing) { c.StreamWaitEvent(c.origin, c.inside, 0) },
		"StreamGetCaptureInfo": func(c *capturing) { c.StreamGetCaptureInfo(c.origin) },
		"MemsetD8Async":        func(c *capturing) { c.MemsetD8Async(0, 0, 0, c.origin) },
		"StreamEndCapture": func(c *capturing) {
			g, r := c.StreamEndCapture(c.origin)
			c.ok(r)
			c.ok(c.GraphDestroy(g))
		},
	}
	crashes := calls{
		"record on the stream":       func(c *capturing) { c.EventRecord(c.event(0, 0), c.origin) },
		"record the event":           func(c *capturing) { c.EventRecord(c.inside, c.other) },
		"query the stream":           func(c *capturing) { c.StreamQuery(c.origin) },
		"query the event":            func(c *capturing) { c.EventQuery(c.inside) },
		"synchronize the stream":     func(c *capturing) { c.StreamSynchronize(c.origin) },
		"synchronize with the event": func(c *capturing) { c.EventSynchronize(c.inside) },
		"wait for the event":         func(c *capturing) { c.StreamWaitEvent(c.other, c.inside, 0) },
		"wait on the stream":         func(c *capturing) { c.StreamWaitEvent(c.origin, c.event(0, 0), 0) },
		"destroy the event":          func(c *capturing) { c.EventDestroy(c.inside) },
		"destroy the stream":         func(c *capturing) { c.StreamDestroy(c.origin) },
		"ask which capture":          func(c *capturing) { c.StreamGetCaptureInfo(c.origin) },
		"begin another":              func(c *capturing) { c.StreamBeginCapture(c.origin, driver.CaptureModeRelaxed) },
		"end it":                     func(c *capturing) { c.StreamEndCapture(c.origin) },
		"copy":                       func(c *capturing) { c.MemcpyAsync(0, 0, 0, c.origin) },
		"launch":                     func(c *capturing) { c.LaunchKernel(0, 1, 1, 1, 1, 1, 1, 0, c.origin, nil, nil) },
		"launch a graph":             func(c *capturing) { c.GraphLaunch(0, c.origin) },
		"free":                       func(c *capturing) { c.MemFreeAsync(0, c.origin) },
	}
	fine := calls{
		"is it capturing":  func(c *capturing) { c.StreamIsCapturing(c.origin) },
		"a graph":          func(c *capturing) { c.GraphDestroy(0) },
		"another event":    func(c *capturing) { c.EventQuery(c.event(0, 0)) },
		"another stream":   func(c *capturing) { c.ok(c.StreamQuery(c.other)) },
		"record elsewhere": func(c *capturing) { c.ok(c.EventRecord(c.event(0, 0), c.other)) },
		"wait elsewhere":   func(c *capturing) { c.ok(c.StreamWaitEvent(c.other, c.event(0, 0), 0)) },
		"another capture": func(c *capturing) {
			c.ok(c.StreamBeginCapture(c.other, driver.CaptureModeRelaxed))
			g, r := c.StreamEndCapture(c.other)
			c.ok(r)
			c.ok(c.GraphDestroy(g))
		},
	}
	for fn, one := range first {
		for name, other := range crashes {
			t.Run(fn+", "+name, func(t *testing.T) {
				c := newCapturing(t, driver.CaptureModeRelaxed, driver.StreamNonBlocking)
				during(c.bed, fn, func() { one(c) }, func() {
					require.Regexp(t, `^cudatest: two threads in calls that touch one capture: \w+ at visit_test.go:\d+ and `+fn+
						` at visit_test.go:\d+; NVIDIA's driver crashes here$`, crash(func() { other(c) }))
				})
			})
		}
		for name, other := range fine {
			t.Run(fn+", "+name, func(t *testing.T) {
				c := newCapturing(t, driver.CaptureModeRelaxed, driver.StreamNonBlocking)
				during(c.bed, fn, func() { one(c) }, func() {
					require.Empty(t, crash(func() { other(c) }))
				})
			})
		}
	}
}

// What is no part of a capture may become one in the other thread's call.
func TestTwoThreadsAtTheEdgeOfACapture(t *testing.T) {
	begin := func(c *capturing) { c.ok(c.StreamBeginCapture(c.other, driver.CaptureModeRelaxed)) }
	for name, test := range map[string]struct {
		fn         string
		one, other func(c *capturing)
	}{
		"record the captured event elsewhere": {"EventRecord",
			func(c *capturing) { c.ok(c.EventRecord(c.plain, c.origin)) },
			func(c *capturing) { c.EventRecord(c.plain, c.other) }},
		"capture the event recorded elsewhere": {"EventRecord",
			func(c *capturing) { c.ok(c.EventRecord(c.plain, c.other)) },
			func(c *capturing) { c.EventRecord(c.plain, c.origin) }},
		"capture an event that is queried": {"EventQuery",
			func(c *capturing) { c.ok(c.EventQuery(c.plain)) },
			func(c *capturing) { c.EventRecord(c.plain, c.origin) }},
		"query a stream that joins": {"StreamWaitEvent",
			func(c *capturing) { c.ok(c.StreamWaitEvent(c.other, c.inside, 0)) },
			func(c *capturing) { c.StreamQuery(c.other) }},
		"query a stream where a capture begins": {"StreamBeginCapture", begin,
			func(c *capturing) { c.StreamQuery(c.other) }},
		"begin where a query is under way": {"StreamQuery",
			func(c *capturing) { c.ok(c.StreamQuery(c.other)) }, begin},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCapturing(t, driver.CaptureModeRelaxed, driver.StreamNonBlocking)
			during(c.bed, test.fn, func() { test.one(c) }, func() {
				require.Contains(t, crash(func() { test.other(c) }), "two threads in calls that touch one capture")
			})
		})
	}
}

// A stream that has joined is part of the capture until the call that ends it returns, and
// the crash leaves nothing behind.
func TestOneThreadAfterTheOther(t *testing.T) {
	c := newCapturing(t, driver.CaptureModeRelaxed, driver.StreamNonBlocking)
	c.ok(c.StreamWaitEvent(c.other, c.inside, 0))
	c.ok(c.EventRecord(c.plain, c.other))
	c.ok(c.StreamWaitEvent(c.origin, c.plain, 0))
	during(c.bed, "StreamEndCapture", func() {
		g, r := c.StreamEndCapture(c.origin)
		c.ok(r)
		c.ok(c.GraphDestroy(g))
	}, func() {
		require.NotEmpty(t, crash(func() { c.StreamQuery(c.other) }))
	})
	require.Zero(t, c.gpu.main.visited.Load())
	c.ok(c.StreamQuery(c.other))
	c.ok(c.EventRecord(c.inside, c.other))
}
