package ipc

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/purecuda/cuda"
)

// counters is a gate of words in host memory that both processes share: one end's
// stream writes a word, and the other's waits for it. The devices do all of it, and
// the CPU can still look at a word, and set it: that is how an end whose peer has died
// gets its streams going again. No event can do that.
type counters struct {
	memory *sharedMemory
	host   *cuda.HostBuffer[uint32]
	slots  []counter

	flushing sync.Mutex
	tail     *cuda.Stream // for flush

	mu        sync.RWMutex // held to fail
	err       error
	stop      chan struct{} // ends insist
	insisting sync.WaitGroup
	calls     sync.RWMutex // held for reading by what uses the memory on the device
	gone      bool         // the memory is
	settled   sync.Once
	closing   sync.Once
}

// counter has the two words of a slot.
type counter struct {
	out    *cuda.HostBuffer[uint32] // this end writes it
	in     *cuda.HostBuffer[uint32] // the other end does
	word   *uint32                  // in, for the CPU
	passed *cuda.Event              // recorded behind each wait for in
	waited bool
	final  uint32 // of in, when the gate failed

	flushed uint64 // the round that tail waits for, or has
}

// Each word has a line of the cache to itself, and more. The first is for trying
// whether the device can do this.
const (
	counterStride = 128 // bytes
	// beyond is how far a word is moved to end all waits for it.
	beyond = 1 << 30
)

func countersSize(slots int) int {
	const page = 4096
	n := (1 + 2*slots) * counterStride
	return (n + page - 1) / page * page
}

// newCounters maps the memory in f, which has room for the counters of slots, and
// tries whether dev can wait for them. The producer's words come first.
func newCounters(dev *cuda.Device, f *os.File, slots int, producer bool) (*counters, error) {
	memory, err := mapShared(f, countersSize(slots))
	if err != nil {
		return nil, err
	}
	c := &counters{memory: memory, slots: make([]counter, slots), stop: make(chan struct{})}
	if err := c.set(dev, producer); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *counters) set(dev *cuda.Device, producer bool) (err error) {
	words := unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(c.memory.bytes))), len(c.memory.bytes)/4)
	if c.host, err = cuda.RegisterHost(dev, words); err != nil {
		return err
	}
	if c.tail, err = dev.NewStream(nil); err != nil {
		return err
	}
	word := func(i int) *cuda.HostBuffer[uint32] {
		at := i * counterStride / 4
		w, rangeErr := c.host.Range(at, at+1)
		if err == nil {
			err = rangeErr
		}
		return w
	}
	for i := range c.slots {
		s := &c.slots[i]
		s.out, s.in = word(1+2*i), word(2+2*i)
		if !producer {
			s.out, s.in = s.in, s.out
		}
		if err != nil {
			return err
		}
		s.word = &s.in.Slice()[0]
		s.passed = cuda.NewEvent(nil)
	}
	trial := word(0)
	if err != nil {
		return err
	}
	if err := c.tail.WriteValue(trial, 1); err != nil {
		return err
	}
	if err := c.tail.WaitValue(trial, 1); err != nil {
		return err
	}
	return c.tail.Synchronize()
}

// reached reports whether a word that has the value v has come to a round.
func reached(v uint32, round uint64) bool { return int32(v-uint32(round)) >= 0 }

// state returns the value of a slot's word, or its last one if the gate has failed, and
// then why.
func (c *counters) state(slot int) (uint32, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.err != nil {
		return c.slots[slot].final, c.err
	}
	return atomic.LoadUint32(c.slots[slot].word), nil
}

// await lets the host be ahead of the device by one round, and no more: otherwise the
// driver's queues would fill up behind a wait, and hold up other streams.
func (c *counters) await(ctx context.Context, s *cuda.Stream, slot int, round uint64) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.calls.RUnlock()
	if v, err := c.state(slot); err != nil && !reached(v, round) {
		return err
	}
	n := &c.slots[slot]
	if n.waited {
		if err := n.passed.SynchronizeContext(ctx); err != nil {
			return err
		}
	}
	if err := s.WaitValue(n.in, uint32(round)); err != nil {
		return err
	}
	n.waited = true
	return n.passed.Record(s)
}

// enter keeps the memory from being closed until calls is released.
func (c *counters) enter() error {
	c.calls.RLock()
	if c.gone {
		c.calls.RUnlock()
		return &cuda.Error{Op: "ring", Err: cuda.ErrClosed}
	}
	return nil
}

func (c *counters) signal(s *cuda.Stream, slot int, round uint64) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.calls.RUnlock()
	return s.WriteValue(c.slots[slot].out, uint32(round))
}

func (c *counters) confirm(ctx context.Context, slot int, round uint64) error {
	v, err := c.state(slot)
	if reached(v, round) {
		return nil
	}
	if err != nil {
		return err
	}
	// The wait for this round is the last: the next one comes after it.
	if err := c.slots[slot].passed.SynchronizeContext(ctx); err != nil {
		return err
	}
	return c.verdict(slot, round)
}

// verdict says of a round for which no stream waits any more whether it has come.
func (c *counters) verdict(slot int, round uint64) error {
	v, err := c.state(slot)
	switch {
	case reached(v, round):
		return nil
	case err == nil:
		return &cuda.Error{Op: "ring", Err: cuda.ErrInvalid, Detail: "the other end has set a counter back"}
	}
	return err
}

// flush waits for one slot after the other, and for no round twice on the device.
func (c *counters) flush(ctx context.Context, rounds []uint64) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.calls.RUnlock()
	for i, round := range rounds {
		if v, err := c.state(i); err == nil && !reached(v, round) {
			if err := c.flushTo(i, round); err != nil {
				return err
			}
			if err := c.tail.SynchronizeContext(ctx); err != nil {
				return err
			}
		}
		if err := c.verdict(i, round); err != nil {
			return err
		}
	}
	return nil
}

func (c *counters) flushTo(slot int, round uint64) error {
	c.flushing.Lock()
	defer c.flushing.Unlock()
	n := &c.slots[slot]
	if n.flushed >= round {
		return nil
	}
	if err := c.tail.WaitValue(n.in, uint32(round)); err != nil {
		return err
	}
	n.flushed = round
	return nil
}

func (c *counters) complete(rounds []uint64) bool {
	for i, round := range rounds {
		if v, _ := c.state(i); !reached(v, round) {
			return false
		}
	}
	return true
}

// fail moves the words so far that every wait for them ends. What they were before
// says what the other end has really done.
func (c *counters) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	for i := range c.slots {
		s := &c.slots[i]
		for s.word != nil {
			s.final = atomic.LoadUint32(s.word)
			if atomic.CompareAndSwapUint32(s.word, s.final, s.final+beyond) {
				break
			}
		}
	}
	c.insisting.Go(c.insist)
}

// insist sets the words again if a write of the other end comes late: the device may
// go on for some milliseconds after a process has died.
func (c *counters) insist() {
	const often, seldom = time.Millisecond, 50 * time.Millisecond
	began := time.Now()
	for settled := false; !settled; {
		pause := often
		if time.Since(began) > time.Second { // the process lives, and may go on for long
			pause = seldom
		}
		select {
		case <-time.After(pause):
		case <-c.stop:
			settled = true
		}
		for i := range c.slots {
			s := &c.slots[i]
			if s.word == nil {
				continue
			}
			if v := atomic.LoadUint32(s.word); v != s.final+beyond {
				atomic.CompareAndSwapUint32(s.word, v, s.final+beyond)
			}
		}
	}
}

func (c *counters) settle() { c.settled.Do(func() { close(c.stop) }) }

func (c *counters) failed() error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.err
}

func (c *counters) hear(ringMessage) {}

// close ends all waits, and returns when no stream uses the words any more.
func (c *counters) close() (err error) {
	c.closing.Do(func() {
		c.fail(&cuda.Error{Op: "ring", Err: cuda.ErrClosed})
		c.calls.Lock() // what waits has been told
		c.gone = true
		c.calls.Unlock()
		for i := range c.slots {
			err = errors.Join(err, c.slots[i].passed.Close())
		}
		err = errors.Join(err, c.tail.Close())
		c.host.AfterFree(func() {
			c.settle()
			c.insisting.Wait()
			_ = c.memory.close()
		})
		unpinned := c.host.Close()
		if unpinned != nil { // the device has failed, or the driver is shutting down: it stays mapped
			c.settle()
		}
		err = errors.Join(err, unpinned)
	})
	return err
}
