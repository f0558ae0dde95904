package races

import (
	"maps"
	"slices"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/callsite"
	"github.com/purecuda/cuda/internal/order"
)

// words are the words of memory that streams write and wait for.
type words struct {
	open    []*openWait
	sweepAt int // sweep when so many are open
}

type wordWrite struct {
	at    order.Point
	value uint32
}

// openWait is what the CPU may end at a time that nobody tells: a wait for a word with a value
// that no stream writes, or a host function.
type openWait struct {
	at           order.Point
	addr         driver.DevicePtr // 0: a host function
	value, flags uint32
}

// mostWrites is how many writes of a word are kept.
const mostWrites = 64

// forgetWords forgets what was written to words among bytes that something else has written.
func (b *block) forgetWords(from, to uint64) {
	maps.DeleteFunc(b.written, func(at uint64, _ []wordWrite) bool { return from < at+4 && at < to })
}

// ends reports whether a value of the word ends the wait.
func (w *openWait) ends(word uint32) bool {
	switch w.flags {
	case driver.StreamWaitValueEQ:
		return word == w.value
	case driver.StreamWaitValueAND:
		return word&w.value != 0
	case driver.StreamWaitValueNOR:
		return ^(word | w.value) != 0
	}
	return int32(word-w.value) >= 0
}

// unsure reports whether p comes after an open wait, and so perhaps after what the host waits
// for until that ends. The caller holds mu.
func (d *detector) unsure(p order.Point) bool {
	d.sweep()
	return slices.ContainsFunc(d.open, func(w *openWait) bool { return d.order.Before(w.at, p) })
}

// begin adds an open wait.
func (d *detector) begin(w *openWait) {
	if len(d.open) >= max(d.sweepAt, 64) {
		d.sweep()
		d.sweepAt = 2 * len(d.open)
	}
	d.open = append(d.open, w)
}

// end ends open waits: what comes behind them comes after what the host knows, and after at.
func (d *detector) end(ends func(w *openWait) bool, at ...order.Point) {
	d.open = slices.DeleteFunc(d.open, func(w *openWait) bool {
		if !ends(w) {
			return false
		}
		d.order.Acquire(w.at, at...)
		return true
	})
	d.settle()
}

// sweep drops waits for words that the host knows to be over. Host functions end by themselves.
func (d *detector) sweep() {
	d.open = slices.DeleteFunc(d.open, func(w *openWait) bool { return w.addr != 0 && d.order.Waited(w.at) })
}

// waitWord puts a wait on a sequence: behind the first of the last writes that end it, if there
// are such. The host may have set the word back since it knows of a write, and at any time if
// it is in its memory: then the wait is open.
func (d *detector) waitWord(s *order.Sequence, w openWait) order.Point {
	b := d.find(uint64(w.addr))
	if b != nil {
		writes := b.written[uint64(w.addr)-b.base]
		i := len(writes)
		for i > 0 && w.ends(writes[i-1].value) && !d.order.Waited(writes[i-1].at) {
			i--
		}
		if i < len(writes) {
			s.Join(writes[i].at)
			if !b.host {
				return s.Next()
			}
		}
	}
	w.at = s.Next()
	d.begin(&w)
	return w.at
}

// writeWord puts a write on a sequence: before the waits that it ends.
func (d *detector) writeWord(s *order.Sequence, addr driver.DevicePtr, value uint32) order.Point {
	at := s.Next()
	d.end(func(w *openWait) bool { return w.addr == addr && w.ends(value) }, at)
	if b := d.find(uint64(addr)); b != nil {
		if b.written == nil {
			b.written = map[uint64][]wordWrite{}
		}
		kept := b.written[uint64(addr)-b.base]
		if len(kept) == mostWrites {
			kept = slices.Delete(kept, 0, 1)
		}
		b.written[uint64(addr)-b.base] = append(kept, wordWrite{at, value})
	}
	return at
}

func (d *detector) wrapWords(api *driver.API) {
	api.StreamWaitValue32 = func(h driver.Stream, addr driver.DevicePtr, value, flags uint32) driver.Result {
		w := openWait{addr: addr, value: value, flags: flags}
		o := &operation{run: func(s *order.Sequence) order.Point { return d.waitWord(s, w) }}
		return d.put(d.stream(h), o, func() driver.Result { return d.api.StreamWaitValue32(h, addr, value, flags) })
	}
	api.StreamWriteValue32 = func(h driver.Stream, addr driver.DevicePtr, value, flags uint32) driver.Result {
		s := d.stream(h)
		o := &operation{
			task: &Task{What: "WriteValue", Stream: s, At: callsite.Caller()},
			uses: d.use(uint64(addr), 4, order.Atomic),
			run:  func(s *order.Sequence) order.Point { return d.writeWord(s, addr, value) },
		}
		return d.putEarly(s, o, func() driver.Result { return d.api.StreamWriteValue32(h, addr, value, flags) })
	}
}
