package cudatest

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

// capturing is a bed with a stream that captures, another stream, and an event
// that was recorded in the capture.
type capturing struct {
	*bed
	origin, other driver.Stream
	inside, plain driver.Event
}

func newCapturing(t *testing.T, mode driver.CaptureMode, flags uint32) *capturing {
	return newCapturingOn(newBed(t, Config{}), mode, flags)
}

func newCapturingOn(b *bed, mode driver.CaptureMode, flags uint32) *capturing {
	c := &capturing{bed: b, origin: b.stream(0, flags), other: b.stream(0, flags), inside: b.event(0, 0), plain: b.event(0, 0)}
	b.ok(b.EventRecord(c.plain, c.other))
	b.ok(b.EventSynchronize(c.plain))
	b.ok(b.StreamBeginCapture(c.origin, mode))
	b.gpu.Run(Handle(c.origin), ms)
	b.ok(b.EventRecord(c.inside, c.origin))
	return c
}

func (c *capturing) status(s driver.Stream) driver.CaptureStatus {
	status, r := c.StreamIsCapturing(s)
	c.ok(r)
	return status
}

func TestCaptureRules(t *testing.T) {
	const (
		global  = driver.CaptureModeGlobal
		local   = driver.CaptureModeThreadLocal
		relaxed = driver.CaptureModeRelaxed
	)
	elsewhere := func(f func(c *capturing) driver.Result) func(c *capturing) driver.Result {
		return func(c *capturing) (r driver.Result) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				c.on(0, func() { r = f(c) })
			}()
			<-done
			return r
		}
	}
	query := func(c *capturing) driver.Result { return c.EventQuery(c.plain) }
	for name, test := range map[string]struct {
		mode  driver.CaptureMode
		call  func(c *capturing) driver.Result
		want  driver.Result
		alive bool
	}{
		"query":                            {global, query, driver.ErrorStreamCaptureUnsupported, false},
		"query elsewhere":                  {global, elsewhere(query), driver.ErrorStreamCaptureUnsupported, false},
		"query, thread-local":              {local, query, driver.ErrorStreamCaptureUnsupported, false},
		"query elsewhere, thread-local":    {local, elsewhere(query), driver.Success, true},
		"query, relaxed":                   {relaxed, query, driver.Success, true},
		"synchronize":                      {global, func(c *capturing) driver.Result { return c.EventSynchronize(c.plain) }, driver.ErrorStreamCaptureUnsupported, false},
		"synchronize a stream":             {global, func(c *capturing) driver.Result { return c.StreamSynchronize(c.other) }, driver.ErrorStreamCaptureUnsupported, false},
		"query the capturing stream":       {relaxed, func(c *capturing) driver.Result { return c.StreamQuery(c.origin) }, driver.ErrorStreamCaptureUnsupported, false},
		"synchronize the capturing stream": {relaxed, func(c *capturing) driver.Result { return c.StreamSynchronize(c.origin) }, driver.ErrorStreamCaptureUnsupported, false},
		"synchronize the context":          {relaxed, func(c *capturing) driver.Result { return c.CtxSynchronize() }, driver.ErrorStreamCaptureUnsupported, false},
		"record the context":               {relaxed, func(c *capturing) driver.Result { return c.CtxRecordEvent(c.ctx[0], c.plain) }, driver.ErrorStreamCaptureUnsupported, false},
		"allocate":                         {global, func(c *capturing) driver.Result { _, r := c.MemAlloc(1); return r }, driver.ErrorStreamCaptureUnsupported, false},
		"query an event inside":            {relaxed, func(c *capturing) driver.Result { return c.EventQuery(c.inside) }, driver.ErrorCapturedEvent, false},
		"synchronize an event inside":      {relaxed, func(c *capturing) driver.Result { return c.EventSynchronize(c.inside) }, driver.ErrorCapturedEvent, false},
		"elapsed":                          {relaxed, func(c *capturing) driver.Result { _, r := c.EventElapsedTime(c.plain, c.inside); return r }, driver.ErrorCapturedEvent, true},
		"wait for an event outside":        {relaxed, func(c *capturing) driver.Result { return c.StreamWaitEvent(c.origin, c.plain, 0) }, driver.ErrorStreamCaptureIsolation, false},
		"wait on the default stream":       {relaxed, func(c *capturing) driver.Result { return c.StreamWaitEvent(0, c.inside, 0) }, driver.ErrorStreamCaptureImplicit, false},
		"external record": {relaxed, func(c *capturing) driver.Result {
			return c.EventRecordWithFlags(c.plain, c.origin, driver.EventRecordExternal)
		}, driver.Success, true},
		"external wait": {relaxed, func(c *capturing) driver.Result {
			return c.StreamWaitEvent(c.origin, c.plain, driver.EventWaitExternal)
		}, driver.Success, true},
		"external record outside": {relaxed, func(c *capturing) driver.Result {
			return c.EventRecordWithFlags(c.plain, c.other, driver.EventRecordExternal)
		}, driver.ErrorIllegalState, true},
		"record elsewhere":            {global, func(c *capturing) driver.Result { return c.EventRecord(c.plain, c.other) }, driver.Success, true},
		"create":                      {global, func(c *capturing) driver.Result { _, r := c.EventCreate(0); return r }, driver.Success, true},
		"begin again":                 {global, func(c *capturing) driver.Result { return c.StreamBeginCapture(c.origin, global) }, driver.ErrorIllegalState, true},
		"begin on the default stream": {global, func(c *capturing) driver.Result { return c.StreamBeginCapture(0, global) }, driver.ErrorStreamCaptureUnsupported, true},
		"begin in an unknown mode":    {global, func(c *capturing) driver.Result { return c.StreamBeginCapture(c.other, 3) }, driver.ErrorInvalidValue, true},
		"end what did not begin":      {global, func(c *capturing) driver.Result { _, r := c.StreamEndCapture(c.other); return r }, driver.ErrorIllegalState, true},
		"query in relaxed mode": {global, func(c *capturing) driver.Result {
			before, r := c.ThreadExchangeStreamCaptureMode(relaxed)
			c.ok(r)
			defer c.ThreadExchangeStreamCaptureMode(before)
			return query(c)
		}, driver.Success, true},
	} {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread() // the one that captures
			defer runtime.UnlockOSThread()
			c := newCapturing(t, test.mode, driver.StreamNonBlocking)
			c.on(0, func() {
				require.Equal(t, test.want, test.call(c))
				want := driver.CaptureInvalidated
				if test.alive {
					want = driver.CaptureActive
				}
				require.Equal(t, want, c.status(c.origin))
			})
		})
	}
}

func TestCaptureForksAndJoins(t *testing.T) {
	c := newCapturing(t, driver.CaptureModeRelaxed, driver.StreamNonBlocking)
	fork := func() {
		c.ok(c.StreamWaitEvent(c.other, c.inside, 0))
		require.Equal(t, driver.CaptureActive, c.status(c.other))
		c.gpu.Run(Handle(c.other), ms)
	}
	fork()
	_, r := c.StreamEndCapture(c.origin)
	require.Equal(t, driver.ErrorStreamCaptureUnjoined, r)
	require.Equal(t, driver.CaptureNone, c.status(c.other))
	for _, r := range []driver.Result{c.EventQuery(c.inside), c.EventSynchronize(c.inside), c.StreamWaitEvent(c.other, c.inside, 0)} {
		require.Equal(t, driver.ErrorInvalidValue, r, "an event of a capture that ended")
	}

	c.ok(c.StreamBeginCapture(c.origin, driver.CaptureModeRelaxed))
	c.ok(c.EventRecord(c.inside, c.origin))
	fork()
	_, r = c.StreamEndCapture(c.other)
	require.Equal(t, driver.ErrorStreamCaptureUnmatched, r)
	_, r = c.StreamEndCapture(c.origin)
	require.Equal(t, driver.ErrorStreamCaptureInvalidated, r)

	c.ok(c.StreamBeginCapture(c.origin, driver.CaptureModeRelaxed))
	c.gpu.Run(Handle(c.origin), ms)
	c.ok(c.EventRecord(c.inside, c.origin))
	fork()
	c.gpu.Run(Handle(c.origin), ms)
	c.ok(c.EventRecord(c.inside, c.other))
	c.ok(c.StreamWaitEvent(c.origin, c.inside, 0))
	g, r := c.StreamEndCapture(c.origin)
	c.ok(r)
	require.Len(t, c.gpu.main.graphs[g].nodes, 3)
	require.Equal(t, driver.Success, c.StreamQuery(c.origin), "nothing ran")
	c.ok(c.GraphDestroy(g))
	require.Equal(t, driver.ErrorInvalidValue, c.GraphDestroy(g))

	c.ok(c.EventRecord(c.inside, c.origin))
	c.ok(c.EventSynchronize(c.inside))
}

func TestCaptureEndsOnItsThread(t *testing.T) {
	b := newBed(t, Config{})
	s := b.stream(0, driver.StreamNonBlocking)
	b.on(0, func() { // locks the thread
		b.ok(b.StreamBeginCapture(s, driver.CaptureModeGlobal))
		done := make(chan driver.Result)
		go func() {
			_, r := b.StreamEndCapture(s)
			done <- r
		}()
		require.Equal(t, driver.ErrorStreamCaptureWrongThread, <-done)
	})
}

func TestCaptureAndTheDefaultStream(t *testing.T) {
	for name, call := range map[string]func(c *capturing) driver.Result{
		"query":  func(c *capturing) driver.Result { return c.StreamQuery(0) },
		"record": func(c *capturing) driver.Result { return c.EventRecord(c.plain, 0) },
		"ask":    func(c *capturing) driver.Result { _, r := c.StreamIsCapturing(0); return r },
	} {
		c := newCapturing(t, driver.CaptureModeRelaxed, driver.StreamDefault)
		c.on(0, func() { require.Equal(t, driver.ErrorStreamCaptureImplicit, call(c), name) })
	}
}

func TestCaptureOutlivesItsStreams(t *testing.T) {
	c := newCapturing(t, driver.CaptureModeRelaxed, driver.StreamNonBlocking)
	c.ok(c.StreamWaitEvent(c.other, c.inside, 0))
	c.gpu.Run(Handle(c.other), ms)
	c.ok(c.StreamDestroy(c.other))
	_, r := c.StreamEndCapture(c.origin)
	require.Equal(t, driver.ErrorStreamCaptureUnjoined, r, "a destroyed stream's work was not joined")

	c.ok(c.StreamBeginCapture(c.origin, driver.CaptureModeGlobal))
	c.ok(c.StreamDestroy(c.origin))
	c.ok(c.EventQuery(c.plain))
}

func TestCapturesDoNotMerge(t *testing.T) {
	c := newCapturing(t, driver.CaptureModeRelaxed, driver.StreamNonBlocking)
	c.ok(c.StreamBeginCapture(c.other, driver.CaptureModeRelaxed))
	require.Equal(t, driver.ErrorStreamCaptureMerge, c.StreamWaitEvent(c.other, c.inside, 0))
	require.Equal(t, driver.ErrorStreamCaptureInvalidated, c.EventRecord(c.plain, c.origin))
	require.Equal(t, driver.ErrorStreamCaptureInvalidated, c.MemsetD8Async(c.mem(0, 1), 0, 1, c.other))
}
