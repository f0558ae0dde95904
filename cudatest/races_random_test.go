package cudatest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

// A program makes random calls and knows by itself, from sets of operations and without
// clocks, what comes after what.
type program struct {
	*bed
	r       *rand.Rand
	streams []*progStream
	events  []*progEvent
	graphs  []*progGraph
	memory  []driver.DevicePtr
	used    map[int][]progUse // by the index of the memory
	words   driver.DevicePtr
	written []past // before the write of each word

	n    int  // operations
	host past // what the host has waited for
	left past // of destroyed streams that synchronised with the default stream
	gone past // of all destroyed streams
	log  []string
}

// past are the numbers of operations that come before something.
type past map[int]bool

func union(sets ...past) past {
	all := past{}
	for _, s := range sets {
		maps.Copy(all, s)
	}
	return all
}

type progStream struct {
	handle   driver.Stream
	blocking bool
	done     past
}

type progEvent struct {
	handle driver.Event
	done   past // nil: not recorded
}

// progUse is an operation that has used memory.
type progUse struct {
	n     int
	write bool
}

// progNode is a node of a graph: a record, a wait or a fill.
type progNode struct {
	after              []int
	record, wait, fill int // which event or memory; -1: none
}

type progGraph struct {
	exec  driver.GraphExec
	nodes []progNode
	last  past // after the last launch
}

const progWords = 500

func newProgram(t *testing.T, seed uint64) *program {
	p := &program{
		bed: newBed(t, Config{}), r: rand.New(rand.NewPCG(seed, 1)),
		used: map[int][]progUse{}, host: past{}, left: past{}, gone: past{},
	}
	p.words = p.mem(0, 4*progWords)
	p.on(0, func() {
		p.ok(p.MemsetD32Async(p.words, 0, progWords, 0))
		p.ok(p.CtxSynchronize())
	})
	p.streams = []*progStream{{done: past{}}} // the default stream
	for i := range 4 {
		p.newStream(i%2 == 0)
		p.memory = append(p.memory, p.mem(0, 16))
		p.events = append(p.events, &progEvent{handle: p.event(0, driver.EventDisableTiming)})
	}
	return p
}

func (p *program) logf(format string, args ...any) {
	p.log = append(p.log, fmt.Sprintf(format, args...))
}

func pick[T any](p *program, of []T) T { return of[p.r.IntN(len(of))] }

func (p *program) newStream(blocking bool) {
	flags := uint32(driver.StreamNonBlocking)
	if blocking {
		flags = 0
	}
	s := &progStream{handle: p.stream(0, flags), blocking: blocking, done: past{}}
	p.logf("new %d, blocking %v", s.handle, blocking)
	p.streams = append(p.streams, s)
}

// before returns what comes before the next operation on s.
func (p *program) before(s *progStream) past {
	before := union(s.done, p.host)
	switch {
	case s == p.streams[0]:
		before = union(before, p.left)
		for _, b := range p.streams {
			if b.blocking {
				before = union(before, b.done)
			}
		}
	case s.blocking:
		before = union(before, p.streams[0].done)
	}
	return before
}

// ordered reports whether a use of memory would come after all that it must.
func (p *program) ordered(before past, memory int, write bool) bool {
	return !slices.ContainsFunc(p.used[memory], func(u progUse) bool { return (write || u.write) && !before[u.n] })
}

// use puts a copy or a fill on s, and reports whether that is a race; if there must be none, it
// leaves out what would be one.
func (p *program) use(s *progStream, races bool) (race bool) {
	before := p.before(s)
	dst, src := p.r.IntN(len(p.memory)), p.r.IntN(len(p.memory))
	copies := dst != src && p.r.IntN(2) == 0
	race = !p.ordered(before, dst, true) || copies && !p.ordered(before, src, false)
	if race && !races {
		return false
	}
	p.n++
	p.on(0, func() {
		if copies {
			p.logf("%d: copy %d to %d on %d", p.n, src, dst, s.handle)
			p.ok(p.MemcpyDtoDAsync(p.memory[dst], p.memory[src], 16, s.handle))
			p.used[src] = append(p.used[src], progUse{p.n, false})
		} else {
			p.logf("%d: fill %d on %d", p.n, dst, s.handle)
			p.ok(p.MemsetD32Async(p.memory[dst], 1, 4, s.handle))
		}
	})
	p.used[dst] = append(p.used[dst], progUse{p.n, true})
	s.done = union(before, past{p.n: true})
	return race
}

// waited notes that the host has waited for s.
func (p *program) waited(s *progStream) {
	p.host = union(p.host, s.done)
	if s == p.streams[0] {
		p.host = p.before(s)
	}
}

func (p *program) step(words bool) {
	s, e := pick(p, p.streams), pick(p, p.events)
	switch p.r.IntN(20) {
	case 0, 1, 2, 3, 4:
		p.use(s, false)
	case 5, 6, 7:
		p.logf("record %d on %d", e.handle, s.handle)
		p.on(0, func() { p.ok(p.EventRecord(e.handle, s.handle)) })
		e.done = p.before(s)
		s.done = e.done
	case 8, 9, 10:
		p.logf("wait for %d on %d", e.handle, s.handle)
		p.on(0, func() { p.ok(p.StreamWaitEvent(s.handle, e.handle, 0)) })
		if e.done != nil {
			s.done = union(p.before(s), e.done)
		}
	case 11:
		p.logf("synchronize %d", s.handle)
		p.on(0, func() { p.ok(p.StreamSynchronize(s.handle)) })
		p.waited(s)
	case 12:
		p.on(0, func() {
			if p.StreamQuery(s.handle) == driver.Success {
				p.logf("query %d: done", s.handle)
				p.waited(s)
			}
		})
		if p.EventQuery(e.handle) == driver.Success {
			p.logf("query %d: done", e.handle)
			p.host = union(p.host, e.done)
		}
	case 13:
		if p.r.IntN(4) == 0 {
			p.logf("synchronize the context")
			p.on(0, func() { p.ok(p.CtxSynchronize()) })
			p.host = union(p.host, p.gone)
			for _, s := range p.streams {
				p.host = union(p.host, s.done)
			}
		}
	case 14:
		if i := p.r.IntN(len(p.streams)); i > 0 {
			s := p.streams[i]
			p.logf("destroy %d", s.handle)
			p.ok(p.StreamDestroy(s.handle))
			p.streams = slices.Delete(p.streams, i, i+1)
			p.gone = union(p.gone, s.done)
			if s.blocking {
				p.left = union(p.left, s.done)
			}
			p.newStream(p.r.IntN(2) == 0)
		}
	case 15:
		p.logf("record the context by %d", e.handle)
		p.ok(p.CtxRecordEvent(p.ctx[0], e.handle))
		e.done = p.gone
		for _, s := range p.streams {
			e.done = union(e.done, s.done)
		}
	case 16:
		if len(p.graphs) < 4 {
			p.capture()
		} else if p.r.IntN(4) == 0 {
			p.ok(p.GraphExecDestroy(p.graphs[0].exec))
			p.graphs = p.graphs[1:]
		}
	case 17:
		if len(p.graphs) > 0 {
			p.launch(pick(p, p.graphs), s)
		}
	case 18:
		word := len(p.written)
		if !words {
			return
		}
		if word > 0 && p.r.IntN(2) == 0 {
			word = p.r.IntN(word)
			p.logf("wait for word %d on %d", word, s.handle)
			p.on(0, func() {
				p.ok(p.StreamWaitValue32(s.handle, p.words+driver.DevicePtr(4*word), 1, driver.StreamWaitValueEQ))
			})
			s.done = union(p.before(s), p.written[word])
		} else if word < progWords {
			p.logf("write word %d on %d", word, s.handle)
			p.on(0, func() { p.ok(p.StreamWriteValue32(s.handle, p.words+driver.DevicePtr(4*word), 1, 0)) })
			s.done = p.before(s)
			p.written = append(p.written, s.done)
		}
	case 19:
		p.logf("run on %d", s.handle)
		stream := Stream(Handle(s.handle))
		if s.handle == 0 {
			stream = p.gpu.Default(0)
		}
		p.gpu.Run(stream, time.Duration(p.r.IntN(50))*time.Microsecond)
		s.done = p.before(s)
	}
}

// Random programs whose accesses are ordered have no races, and those with one access that is not
// have. With words a race may be missed: what waits for a word comes after all that the host knows
// when the word is there.
func TestRacesOfRandomPrograms(t *testing.T) {
	for seed := range uint64(100) {
		p := newProgram(t, seed)
		words := seed%2 == 0
		for range 100 {
			p.step(words)
		}
		require.Zero(t, p.races(), "seed %d\n%s\n%v", seed, strings.Join(p.log, "\n"), p.gpu.Problems())
		for i := range p.n {
			p.host[i+1] = true
		}
		for range 20 {
			p.step(words)
		}
		race := false
		for range 30 {
			race = race || p.use(pick(p, p.streams), true)
		}
		if found := p.races() > 0; found != race && !words || found && !race {
			t.Fatalf("seed %d: race %v\n%s\n%v", seed, race, strings.Join(p.log, "\n"), p.gpu.Problems())
		}
	}
}
