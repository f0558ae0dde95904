package cudatest

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/callsite"
)

// visit is a call in progress that names a stream or an event, during captures.
//
// NVIDIA's driver does not synchronise what belongs to a capture, and crashes where
// two threads are in calls that touch one. The lock in here would hide that. So visits
// begin before a call takes the lock, and last until it has returned.
type visit struct {
	proc     *Process
	fn       string
	from     callsite.Site
	begins   bool // a capture
	stream   *stream
	event    *event
	captures []*capture // that it touched when it began
}

// enter begins a visit, unless there are no captures.
func (p *Process) enter(fn string, s driver.Stream, e driver.Event) *visit {
	if p.visited.Load() == 0 {
		return nil
	}
	return p.visit(&visit{fn: fn}, s, e)
}

// visit begins v. It panics if the call and another one touch one capture.
func (p *Process) visit(v *visit, s driver.Stream, e driver.Event) *visit {
	runtime.Callers(3, v.from[:])
	if other := p.meet(v, s, e); other != nil {
		panic(fmt.Sprintf("cudatest: two threads in calls that touch one capture: %v and %v; NVIDIA's driver crashes here", v, other))
	}
	p.linger(v)
	return v
}

// linger makes the calls that touch a capture so long, some microseconds, that others
// meet them.
func (v *visit) linger() {
	if !v.begins && len(v.captures) == 0 {
		return
	}
	for range 100 {
		runtime.Gosched()
	}
}

// meet adds v to the visits, unless it may not be beside another one, which it returns.
func (p *Process) meet(v *visit, s driver.Stream, e driver.Event) *visit {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	v.proc, v.stream, v.event = p, p.streams[s], p.events[e]
	if v.stream != nil && v.stream.capture != nil {
		v.captures = append(v.captures, v.stream.capture)
	}
	if v.event != nil && v.event.capture != nil && !v.event.capture.ended {
		v.captures = append(v.captures, v.event.capture)
	}
	for _, other := range p.visits {
		if v.clashes(other) {
			return other
		}
	}
	p.visits = append(p.visits, v)
	p.countVisits()
	return nil
}

// leave ends the visit.
func (v *visit) leave() {
	if v == nil {
		return
	}
	p := v.proc
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	p.visits = slices.DeleteFunc(p.visits, func(x *visit) bool { return x == v })
	p.countVisits()
}

func (p *Process) countVisits() { p.visited.Store(int64(len(p.visits) + len(p.captures))) }

// clashes reports whether both calls touch one capture.
func (v *visit) clashes(o *visit) bool {
	for _, c := range slices.Concat(v.captures, o.captures) {
		if v.touches(c) && o.touches(c) {
			return true
		}
	}
	// One call may be about to make what both name part of its capture.
	same := v.stream != nil && v.stream == o.stream || v.event != nil && v.event == o.event
	return same && (v.begins || o.begins || len(v.captures)+len(o.captures) > 0)
}

func (v *visit) touches(c *capture) bool {
	return slices.Contains(v.captures, c) ||
		v.stream != nil && slices.Contains(c.streams, v.stream) || v.event != nil && v.event.capture == c
}

// String names the call, the line that it came from, and the nearest one of a test or of
// another module.
func (v *visit) String() string {
	at := ""
	frames := runtime.CallersFrames(v.from[:slices.Index(append(v.from[:], 0), 0)])
	for {
		f, more := frames.Next()
		line := fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
		test := strings.HasSuffix(f.File, "_test.go")
		switch {
		case test || !strings.HasPrefix(f.Function, callsite.Module):
			if at == "" {
				at = line
			} else if !strings.HasPrefix(f.Function, "runtime.") {
				at += ", for " + line
			}
			more = false
		case at == "" && !strings.HasPrefix(f.Function, callsite.Module+"/cudatest."):
			at = line
		}
		if !more {
			return v.fn + " at " + at
		}
	}
}
