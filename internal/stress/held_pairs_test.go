package stress_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// pair is what two calls share, of which one is held up at the driver's door and the other
// overtakes it.
type pair struct {
	b      *held
	s, o   *cuda.Stream
	e, end *cuda.Event // recorded on s
	m      *cuda.Buffer[uint32]
	host   *cuda.HostBuffer[uint32]
	x      *cuda.GraphExec
}

const pairSize = 16

func newPair(t *testing.T, b *held) *pair {
	p := &pair{b: b, host: b.host(t, pairSize)}
	timed := &cuda.EventOptions{Timing: true}
	p.e, p.end = cuda.NewEvent(timed), cuda.NewEvent(timed)
	var err error
	for _, s := range []**cuda.Stream{&p.s, &p.o} {
		*s, err = b.NewStream(nil)
		require.NoError(t, err)
	}
	p.m, err = cuda.AllocAsync[uint32](p.s, pairSize)
	require.NoError(t, err)
	g, err := p.s.Capture(func() error { return b.run(p.s, time.Microsecond) })
	require.NoError(t, err)
	p.x, err = g.Instantiate()
	require.NoError(t, err)
	require.NoError(t, g.Close())
	require.NoError(t, p.s.WaitStream(p.o)) // each has the event that it needs for this
	require.NoError(t, p.o.WaitStream(p.s))
	require.NoError(t, p.e.Record(p.s))
	require.NoError(t, p.end.Record(p.s))
	for _, s := range []*cuda.Stream{p.s, p.o} {
		require.NoError(t, s.Synchronize())
	}
	return p
}

// close closes all that is left of p.
func (p *pair) close(t *testing.T) {
	for _, c := range []interface{ Close() error }{p.m, p.x, p.e, p.end, p.s, p.o} {
		require.NoError(t, c.Close())
	}
}

// works wants whatever is still open to work as before.
func (p *pair) works(t *testing.T) {
	const closed = "closed"
	if strings.Contains(p.e.String(), closed) {
		p.e = cuda.NewEvent(nil)
	}
	for _, s := range []*cuda.Stream{p.s, p.o} {
		if strings.Contains(s.String(), closed) {
			continue
		}
		m, err := cuda.AllocAsync[uint32](s, pairSize)
		require.NoError(t, err)
		require.NoError(t, cuda.Fill(s, m, 7))
		require.NoError(t, cuda.Copy(s, p.host, m))
		require.NoError(t, p.e.Record(s))
		require.NoError(t, m.Close())
		require.NoError(t, p.e.Synchronize())
		require.EqualValues(t, 7, p.host.Slice()[pairSize-1])
		_, err = s.Query()
		require.NoError(t, err)
		clear(p.host.Slice())
	}
}

// pairCall is one of the two. It works on the streams in calls, and halts those in halts.
type pairCall struct {
	name         string
	calls, halts string
	do           func(p *pair) error
}

var pairCalls = []pairCall{
	{"record", "s", "", func(p *pair) error { return p.e.Record(p.s) }},
	{"record elsewhere", "o", "", func(p *pair) error { return p.e.Record(p.o) }},
	{"wait", "o", "", func(p *pair) error { return p.e.Wait(p.o) }},
	{"wait on its own stream", "s", "", func(p *pair) error { return p.e.Wait(p.s) }},
	{"query", "", "", func(p *pair) error { _, err := p.e.Query(); return err }},
	{"synchronize", "", "", func(p *pair) error { return p.e.Synchronize() }},
	{"elapsed time", "", "", func(p *pair) error { _, err := p.e.ElapsedTime(p.end); return err }},
	{"close the event", "", "", func(p *pair) error { return p.e.Close() }},
	{"query the stream", "s", "", func(p *pair) error { _, err := p.s.Query(); return err }},
	{"synchronize the stream", "s", "", func(p *pair) error { return p.s.Synchronize() }},
	{"wait for the other", "so", "", func(p *pair) error { return p.s.WaitStream(p.o) }},
	{"be waited for by the other", "so", "", func(p *pair) error { return p.o.WaitStream(p.s) }},
	{"copy", "s", "", func(p *pair) error { return cuda.Copy(p.s, p.m, p.host) }},
	{"fill elsewhere", "o", "", func(p *pair) error { return cuda.Fill(p.o, p.m, 1) }},
	{"launch", "s", "", func(p *pair) error { return p.b.run(p.s, time.Microsecond) }},
	{"launch a graph", "s", "", func(p *pair) error { return p.x.Launch(p.s) }},
	{"allocate", "s", "", func(p *pair) error {
		m, err := cuda.AllocAsync[uint32](p.s, pairSize)
		if err != nil {
			return err
		}
		return m.Close()
	}},
	{"close the memory", "", "", func(p *pair) error { return p.m.Close() }},
	{"close the graph", "", "", func(p *pair) error { return p.x.Close() }},
	{"close the stream", "", "", func(p *pair) error { return p.s.Close() }},
	{"close the other stream", "", "", func(p *pair) error { return p.o.Close() }},
	{"wait for the device", "", "", func(p *pair) error { return p.b.Synchronize() }},
	{"capture", "s", "s", func(p *pair) error {
		return p.capture(p.s, func() error { return except(p.e.Record(p.s), nil, cuda.ErrClosed) })
	}},
	{"capture the other", "o", "o", func(p *pair) error {
		return p.capture(p.o, func() error { return p.b.run(p.o, time.Microsecond) })
	}},
	{"capture both", "so", "so", func(p *pair) error {
		return p.capture(p.o, func() error {
			if err := p.s.WaitStream(p.o); err != nil {
				return err
			}
			p.b.run(p.s, time.Microsecond)
			return p.o.WaitStream(p.s)
		})
	}},
}

func (p *pair) capture(s *cuda.Stream, f func() error) error {
	g, err := s.Capture(f)
	if g != nil {
		g.Close()
	}
	return err
}

// pairDoors says where calls are held up: at which function, on which streams they are then,
// and, where others wait for them that do not halt these, for whom.
var pairDoors = []struct {
	call, function, on string
	begins             bool // a capture: those wait who call s
	ends               bool // a capture: those wait who call s, and look what became of it
}{
	{call: "record", function: "EventRecord", on: "s"},
	{call: "record elsewhere", function: "EventRecord", on: "o"},
	{call: "wait", function: "StreamWaitEvent", on: "o"},
	{call: "wait on its own stream", function: "StreamWaitEvent", on: "s"},
	{call: "query", function: "EventQuery"},
	{call: "synchronize", function: "EventQuery"},
	{call: "elapsed time", function: "EventElapsedTime"},
	{call: "query the stream", function: "StreamQuery", on: "s"},
	{call: "wait for the other", function: "EventRecord", on: "so"},
	{call: "wait for the other", function: "StreamWaitEvent", on: "so"},
	{call: "copy", function: "MemcpyAsync", on: "s"},
	{call: "fill elsewhere", function: "MemsetD32Async", on: "o"},
	{call: "launch", function: "LaunchKernel", on: "s"},
	{call: "launch a graph", function: "GraphLaunch", on: "s"},
	{call: "allocate", function: "MemAllocFromPoolAsync", on: "s"},
	{call: "allocate", function: "MemFreeAsync", on: "s"},
	{call: "close the memory", function: "MemFreeAsync", on: "s"},
	{call: "close the graph", function: "GraphExecDestroy"},
	{call: "close the other stream", function: "StreamDestroy"},
	{call: "wait for the device", function: "CtxRecordEvent"},
	{call: "capture", function: "StreamBeginCapture", begins: true},
	{call: "capture", function: "StreamEndCapture", ends: true},
}

// waits reports whether c has to wait for one that is held up.
func (c *pairCall) waits(door int) bool {
	d := pairDoors[door]
	callsS := strings.Contains(c.calls, "s")
	switch {
	case d.begins:
		return callsS || strings.Contains(c.halts, "s") || c.name == "close the memory"
	case d.ends && c.name == "capture": // it is refused at once: one capture of a stream at a time
		return false
	case d.ends:
		return callsS || c.name == "wait" || c.name == "query" || c.name == "synchronize"
	case d.function == "CtxRecordEvent": // captures wait for it, and one is made at a time
		return c.halts != "" || c.name == "wait for the device"
	case c.name == "launch a graph" && d.function == "GraphLaunch": // the driver wants one at a time
		return true
	}
	return strings.ContainsAny(c.halts, d.on)
}

// One call is held up at the driver's door, before its function and after it, and another
// made: it waits only if a capture is to begin, and whoever comes first, the outcome is one
// that an order of the two has, and all goes on.
func TestHeldPairs(t *testing.T) {
	onHeld(t, func(t *testing.T, b *held) {
		for i, door := range pairDoors {
			first := pairCalls[slices.IndexFunc(pairCalls, func(c pairCall) bool { return c.name == door.call })]
			for _, after := range []bool{false, true} {
				if after && testing.Short() {
					continue
				}
				for _, second := range pairCalls {
					where := map[bool]string{false: " before ", true: " after "}[after]
					t.Run(first.name+where+door.function+", "+second.name, func(t *testing.T) {
						overtake(t, b, first, second, door.function, after, second.waits(i))
					})
				}
			}
		}
	})
}

func overtake(t *testing.T, b *held, first, second pairCall, function string, after, waits bool) {
	p := newPair(t, b)
	allowed := []error{nil, cuda.ErrClosed, cuda.ErrCapturing, cuda.ErrCaptured, cuda.ErrNotCompleted, driver.ErrorStreamCaptureUnjoined}
	call := func(c pairCall) chan error {
		result := make(chan error, 1)
		go func() { result <- except(c.do(p), allowed...) }()
		return result
	}
	arrived, open := b.door(function, after)
	defer b.hold.Store(nil)
	defer open()
	one := call(first)
	testgpu.Receive(t, arrived)
	other := call(second)
	if waits {
		select {
		case err := <-other:
			t.Errorf("it did not wait for the first, and ended with %v", err)
			other <- err
		case <-time.After(3 * time.Millisecond):
		}
	} else {
		require.NoError(t, testgpu.Receive(t, other))
	}
	require.Empty(t, one)
	open()
	require.NoError(t, testgpu.Receive(t, one))
	if waits {
		require.NoError(t, testgpu.Receive(t, other))
	}
	p.works(t)
	p.close(t)
}
