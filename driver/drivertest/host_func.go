package drivertest

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/purecuda/cuda/driver"
)

// Functions of the host in a stream.

var hostFuncRows = []row{
	{"driver: a host function waits for the work before it", 0, hostFuncWaits},
	{"driver: work waits for the host function before it", 0, hostFuncIsWaitedFor},
	{"driver: a host function is called though nobody asks", 0, hostFuncUnasked},
	{"driver: a host function may ask and not enqueue", 0, hostFuncCalls},
	{"driver: a graph calls its host function at each launch", 0, hostFuncNode},
}

// hostFunc makes a host function of f, for as long as the row runs.
func (b *bench) hostFunc(f func()) driver.HostFunc {
	h := driver.NewHostFunc(f)
	b.t.Cleanup(h.Release)
	return h
}

// eventually waits until n is want, without calling the driver.
func (b *bench) eventually(what string, n *atomic.Int32, want int32) {
	b.t.Helper()
	for n.Load() != want {
		if b.late() {
			b.t.Fatalf("%s: %d, want %d", what, n.Load(), want)
		}
		time.Sleep(20 * time.Microsecond)
	}
}

func hostFuncWaits(b *bench) {
	s, w := b.stream(0), b.word()
	var calls, seen atomic.Int32
	f := b.hostFunc(func() {
		seen.Store(int32(w.load()))
		calls.Add(1)
	})
	h := b.hold(s)
	b.mark(s, w)
	b.ok("LaunchHostFunc", b.LaunchHostFunc(s, f))
	time.Sleep(settle)
	equal(b, "calls while the stream is held", calls.Load(), 0)
	h.release()
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
	equal(b, "calls", calls.Load(), 1)
	equal(b, "the word that the function saw", seen.Load(), 1)
}

func hostFuncIsWaitedFor(b *bench) {
	s, other, w, v := b.stream(0), b.stream(0), b.word(), b.word()
	goOn := make(chan struct{})
	let := sync.OnceFunc(func() { close(goOn) })
	b.t.Cleanup(let)
	var begun atomic.Int32
	f := b.hostFunc(func() {
		begun.Add(1)
		<-goOn
	})
	b.ok("LaunchHostFunc", b.LaunchHostFunc(s, f))
	b.mark(s, w)
	b.mark(other, v)
	b.eventually("functions that have begun", &begun, 1)
	b.unreached("work behind a function that has not returned", s, w)
	b.reached("work on another stream", other, v)
	b.want("StreamQuery", b.StreamQuery(s), driver.ErrorNotReady)
	let()
	b.reached("work behind a function that has returned", s, w)
}

func hostFuncUnasked(b *bench) {
	s, w := b.stream(0), b.word()
	var calls atomic.Int32
	f := b.hostFunc(func() { calls.Add(1) })
	for range 3 {
		b.mark(s, w)
		b.ok("LaunchHostFunc", b.LaunchHostFunc(s, f))
	}
	b.eventually("calls of a function that was enqueued three times", &calls, 3)
	time.Sleep(settle)
	equal(b, "calls a while later", calls.Load(), 3)
}

func hostFuncCalls(b *bench) {
	kernel := b.fill(0)
	s, other, x := b.stream(0), b.stream(0), b.mem(0, piece)
	e := b.record(0, other)
	b.set(other, x, 0)
	b.ok("StreamSynchronize", b.StreamSynchronize(other))
	args := fillArgs(x, pieceWords, each(1))
	var query, streamQuery, record, launch driver.Result
	f := b.hostFunc(func() {
		query, streamQuery = b.EventQuery(e), b.StreamQuery(other)
		record = b.EventRecord(e, other)
		launch = b.LaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, other, args, nil)
	})
	b.ok("LaunchHostFunc", b.LaunchHostFunc(s, f))
	b.ok("StreamSynchronize", b.StreamSynchronize(s))
	b.ok("EventQuery in a host function", query)
	b.ok("StreamQuery in a host function", streamQuery)
	b.ok("EventRecord in a host function", record)
	b.want("LaunchKernel in a host function", launch, driver.ErrorNotPermitted)
	b.contains("what it would have filled", other, x, 0)
}

func hostFuncNode(b *bench) {
	s := b.stream(0)
	var calls atomic.Int32
	f := b.hostFunc(func() { calls.Add(1) })
	x := b.exec(s, func() { b.ok("LaunchHostFunc in a capture", b.LaunchHostFunc(s, f)) })
	time.Sleep(settle)
	equal(b, "calls before any launch", calls.Load(), 0)
	for i := range int32(3) {
		b.launch(x, s)
		b.ok("StreamSynchronize", b.StreamSynchronize(s))
		equal(b, "calls after a launch", calls.Load(), i+1)
	}
}
