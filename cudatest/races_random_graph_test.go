package cudatest

import (
	"slices"

	"github.com/purecuda/cuda/driver"
)

// capture makes a graph of forks, joins, fills, records and waits. Within it nothing races.
func (p *program) capture() {
	g := &progGraph{last: past{}}
	streams, fronts := []driver.Stream{p.stream(0, driver.StreamNonBlocking)}, [][]int{nil}
	link := p.event(0, driver.EventDisableTiming)
	p.ok(p.StreamBeginCapture(streams[0], driver.CaptureModeRelaxed))
	var before []past // of each node
	ahead := func(front []int) past {
		all := past{}
		for _, i := range front {
			all = union(all, before[i], past{i: true})
		}
		return all
	}
	add := func(i int, n progNode) {
		n.after = fronts[i]
		before = append(before, ahead(fronts[i]))
		g.nodes = append(g.nodes, n)
		fronts[i] = []int{len(g.nodes) - 1}
	}
	join := func(i, j int) { // j waits for i
		p.ok(p.EventRecord(link, streams[i]))
		p.ok(p.StreamWaitEvent(streams[j], link, 0))
		both := append(slices.Clone(fronts[j]), fronts[i]...)
		slices.Sort(both)
		fronts[j] = slices.Compact(both)
	}
	for range 3 + p.r.IntN(12) {
		i, memory, event := p.r.IntN(len(streams)), p.r.IntN(len(p.memory)), p.r.IntN(len(p.events))
		switch p.r.IntN(7) {
		case 0:
			streams, fronts = append(streams, p.stream(0, driver.StreamNonBlocking)), append(fronts, nil)
			join(i, len(streams)-1)
		case 1:
			join(i, p.r.IntN(len(streams)))
		case 2:
			p.ok(p.EventRecordWithFlags(p.events[event].handle, streams[i], driver.EventRecordExternal))
			add(i, progNode{record: event, wait: -1, fill: -1})
		case 3:
			p.ok(p.StreamWaitEvent(streams[i], p.events[event].handle, driver.EventWaitExternal))
			add(i, progNode{record: -1, wait: event, fill: -1})
		default:
			now := ahead(fronts[i])
			races := false
			for j, n := range g.nodes {
				races = races || n.fill == memory && !now[j]
			}
			if !races {
				p.ok(p.MemsetD32Async(p.memory[memory], 1, 4, streams[i]))
				add(i, progNode{record: -1, wait: -1, fill: memory})
			}
		}
	}
	for i := range streams[1:] {
		join(i+1, 0)
	}
	graph, r := p.StreamEndCapture(streams[0])
	p.ok(r)
	p.on(0, func() { g.exec, r = p.GraphInstantiateWithFlags(graph, 0) })
	p.ok(r)
	p.ok(p.GraphDestroy(graph))
	p.ok(p.EventDestroy(link))
	for _, s := range streams {
		p.ok(p.StreamDestroy(s))
	}
	p.graphs = append(p.graphs, g)
	p.logf("graph %d: %+v", g.exec, g.nodes)
}

// launch puts a graph on s, unless that is a race.
func (p *program) launch(g *progGraph, s *progStream) {
	begin := union(p.before(s), g.last)
	var after []past // each node
	events := map[int]past{}
	all := begin
	for i, n := range g.nodes {
		before := begin
		for _, a := range n.after {
			before = union(before, after[a])
		}
		if n.wait >= 0 {
			recorded, here := events[n.wait]
			if !here {
				recorded = p.events[n.wait].done
			}
			before = union(before, recorded)
		}
		if n.fill >= 0 && !p.ordered(before, n.fill, true) {
			return
		}
		after = append(after, union(before, past{p.n + 1 + i: true}))
		if n.record >= 0 {
			events[n.record] = after[i]
		}
		all = union(all, after[i])
	}
	p.logf("launch %d on %d, from %d", g.exec, s.handle, p.n+1)
	p.on(0, func() { p.ok(p.GraphLaunch(g.exec, s.handle)) })
	for i, n := range g.nodes {
		if n.fill >= 0 {
			p.used[n.fill] = append(p.used[n.fill], progUse{p.n + 1 + i, true})
		}
	}
	p.n += len(g.nodes)
	for i, d := range events {
		p.events[i].done = d
	}
	s.done, g.last = all, all
}
