package cudatest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/purecuda/cuda/internal/callsite"
)

// Check reports, by t.Errorf, what the processes on the machine did wrong: see
// [GPU.Problems]. It belongs at a test's end, after everything was closed:
//
//	t.Cleanup(func() { gpu.Check(t) })
func (g *GPU) Check(t interface {
	Helper()
	Errorf(format string, args ...any)
}) {
	t.Helper()
	for _, problem := range g.Problems() {
		t.Errorf("%s", problem)
	}
}

// Problems lists the races so far: pairs of operations that are done and have used the same
// memory, at least one of them to write it, with nothing that orders them, however the
// two have run. It also lists the streams, events, graphs, executable graphs, modules and
// memory that exist now and the contexts that are still pushed, because at a test's end they were leaked, and
// all misuse so far: calls with unknown or destroyed handles, without a current
// context, on the wrong device, or with addresses outside allocations. Killed
// processes leak nothing.
func (g *GPU) Problems() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, inside := g.clock(); inside {
		g.advance()
	}
	all := slices.Clone(g.races.All())
	for _, p := range g.procs {
		list := append(p.leaks(), p.misuses.list()...)
		for i, s := range list {
			if p != g.main {
				list[i] = fmt.Sprintf("process %d: %s", p.id.PID, s)
			}
		}
		all = append(all, list...)
	}
	return all
}

// leaks lists what the process has not given back.
func (p *Process) leaks() []string {
	if p.dying {
		return nil
	}
	var list []string
	leak := func(c *context, made callsite.Site, format string, args ...any) {
		where := ""
		if c != nil {
			where = fmt.Sprintf(" of device %d", c.ordinal)
		}
		list = append(list, fmt.Sprintf("leaked: %s%s, made at %v", fmt.Sprintf(format, args...), where, made))
	}
	for _, s := range sorted(p.streams) {
		leak(s.ctx, s.made, "stream %#x", s.handle)
	}
	for _, e := range sorted(p.events) {
		if p.api.Retained.Has(uint64(e.handle)) {
			continue
		}
		leak(e.ctx, e.made, "event %#x", e.handle)
	}
	for _, g := range sorted(p.graphs) {
		leak(nil, g.made, "graph %#x", g.handle)
	}
	for _, x := range sorted(p.execs) {
		leak(x.ctx, x.made, "executable graph %#x", x.handle)
	}
	for _, m := range sorted(p.modules) {
		leak(m.ctx, m.made, "module %#x", m.handle)
	}
	for _, b := range p.blocks {
		if p.api.Retained.Has(b.base) {
			continue
		}
		kind := "device memory"
		switch {
		case b.registered:
			kind = "registered host memory"
		case b.chunk != nil:
			kind = "pool memory"
		case b.host:
			kind = "pinned host memory"
		case b.opened > 0:
			kind = "opened memory"
		}
		leak(b.ctx, b.made, "%d bytes of %s at %#x", b.size, kind, b.base)
	}
	for _, id := range slices.Sorted(maps.Keys(p.threads)) {
		if n := len(p.threads[id].stack); n > 0 {
			list = append(list, fmt.Sprintf("leaked: on thread %d, %d contexts were pushed and not popped", id, n))
		}
	}
	return list
}

// sorted returns the values of m in the order of their handles.
func sorted[K cmp.Ordered, V any](m map[K]V) []V {
	var values []V
	for _, k := range slices.Sorted(maps.Keys(m)) {
		values = append(values, m[k])
	}
	return values
}

// misuseLog counts misuses by what they were. It is bounded, so that a test
// that provokes one a million times does not grow.
type misuseLog struct {
	order []string
	count map[string]int
	more  int // those that did not fit
}

const misuseLimit = 100

func (l *misuseLog) add(s string) {
	if l.count == nil {
		l.count = map[string]int{}
	}
	switch {
	case l.count[s] > 0:
	case len(l.order) == misuseLimit:
		l.more++
		return
	default:
		l.order = append(l.order, s)
	}
	l.count[s]++
}

func (l *misuseLog) list() []string {
	var list []string
	for _, s := range l.order {
		if n := l.count[s]; n > 1 {
			s = fmt.Sprintf("%s (%d times)", s, n)
		}
		list = append(list, "misuse: "+s)
	}
	if l.more > 0 {
		list = append(list, fmt.Sprintf("misuse: and %d more", l.more))
	}
	return list
}

// misuse notes that a call of fn broke a rule.
func (p *Process) misuse(fn, format string, args ...any) {
	p.misuses.add(fmt.Sprintf("%s: %s, at %v", fn, fmt.Sprintf(format, args...), callsite.Caller()))
}

// badHandle notes a call of fn with a handle that names nothing, and says
// whether it ever did: handles are numbered up to last.
func (p *Process) badHandle(fn, kind string, h, base, step, last uint64) {
	first := p.gpu.handle(base, step, 1)
	switch {
	case h >= first && (h-first)%step == 0 && (h-first)/step < last:
		p.misuse(fn, "%s %#x was destroyed, or is another process's", kind, h)
	default:
		p.misuse(fn, "no %s ever had the handle %#x", kind, h)
	}
}
