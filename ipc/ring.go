package ipc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"

	"github.com/purecuda/cuda"
)

// A ring is a number of buffers in the memory of one device, through which batches go
// from a process to another, without a copy and in order: see [Producer] and
// [Consumer]. The device itself keeps the order, by a [gate].
//
// ring is what both ends have in common.
type ring struct {
	session *Session
	name    string
	id      ringID
	dev     *cuda.Device
	slots   int
	gate    gate
	closer  io.Closer // the end that it is of, when that is there

	turn chan struct{} // full while a goroutine takes a batch

	mu     sync.Mutex
	next   uint64 // the number of the next batch
	end    uint64 // how many batches there are, if that is known
	ended  bool
	use    []use // of the slots
	closed bool
	last   uint64 // when closed: how many batches count

	// halt ends with the taking of batches: the ring is closed, or the other end is no
	// longer there to give any.
	halt   context.Context
	halted context.CancelCauseFunc

	heard    chan ringMessage
	peerDone chan struct{} // closed when the other end will not use the memory any more
	over     chan struct{} // closed by abandon
	abandon  func()
}

// use is what a slot is in.
type use uint8

const (
	free   use = iota
	taken      // by the user
	giving     // by the user, who gives it back
)

// gate orders the two processes: the work of one comes after what the other has said
// of a slot. For each slot what is said is numbered from 1: its rounds.
type gate interface {
	// await makes what is enqueued on s from now on come after the other end's signal.
	// It may return before that has come.
	await(ctx context.Context, s *cuda.Stream, slot int, round uint64) error
	// signal tells the other end when s has come to it.
	signal(s *cuda.Stream, slot int, round uint64) error
	// confirm waits on the host until an awaited signal has come; if it never will, it
	// says why.
	confirm(ctx context.Context, slot int, round uint64) error
	// flush waits until the rounds have come, one for each slot.
	flush(ctx context.Context, rounds []uint64) error
	// complete reports whether the rounds have come, one for each slot.
	complete(rounds []uint64) bool
	// fail ends all waits for signals that have not come. Only the first call counts.
	fail(err error)
	// settle is called when the other end can do nothing any more.
	settle()
	// failed returns what fail was told.
	failed() error
	// hear takes what the other end has to say to this one.
	hear(m ringMessage)
	// close gives up what belongs to the gate. Nothing waits any more.
	close() error
}

// ringMessage is what the ends of a ring tell each other. One of the pointers is set, or
// Closed.
type ringMessage struct {
	Ring     uint64 `json:"ring"`
	Producer bool   `json:"producer,omitempty"` // it says so
	Name     string `json:"name,omitempty"`     // with Setup and Error
	Error    string `json:"error,omitempty"`    // why the producer has given up

	Setup  *ringSetup  `json:"setup,omitempty"`  // from the producer, with the memory of the counters
	Ready  *ringReady  `json:"ready,omitempty"`  // the consumer's answer
	Event  *ringEvent  `json:"event,omitempty"`  // of a device without counters
	Signal *ringSignal `json:"signal,omitempty"` // likewise
	End    *uint64     `json:"end,omitempty"`    // from the producer: how many batches there were
	Closed bool        `json:"closed,omitempty"` // this end will not use the memory any more

	file *os.File
}

type ringSetup struct {
	Slots    int  `json:"slots"`
	Length   int  `json:"length"`
	Element  int  `json:"element"` // bytes
	Counters bool `json:"counters"`
}

type ringReady struct {
	Counters bool   `json:"counters"`
	Error    string `json:"error,omitempty"`
}

const (
	// maxSlots is how many buffers a ring can have.
	maxSlots = 1024
	// ringNameLimit leaves room for the rest of memoryName, with any number.
	ringNameLimit = nameLimit - len("ring 18446744073709551615: ")
)

func checkRing(op, name string, slots, length int) error {
	if name == "" || len(name) > ringNameLimit {
		return invalid(op, "the name of a ring has 1 to %d bytes, this has %d", ringNameLimit, len(name))
	}
	if err := checkName(name); err != nil {
		return invalid(op, "%v", err)
	}
	if slots < 1 || slots > maxSlots {
		return invalid(op, "%d slots; a ring has 1 to %d", slots, maxSlots)
	}
	if length < 1 || length > maxLength/slots {
		return invalid(op, "%d slots of %d elements", slots, length)
	}
	return nil
}

const maxLength = math.MaxInt / 64

func newRing(s *Session, name string, slots int) *ring {
	r := &ring{
		session:  s,
		name:     name,
		turn:     make(chan struct{}, 1),
		heard:    make(chan ringMessage, 16),
		peerDone: make(chan struct{}),
		over:     make(chan struct{}),
	}
	r.halt, r.halted = context.WithCancelCause(context.Background())
	r.abandon = sync.OnceFunc(func() {
		r.halted(&cuda.Error{Op: "ring", Err: cuda.ErrClosed})
		close(r.over)
		s.rings.leave(r)
	})
	r.setSlots(slots)
	return r
}

func (r *ring) setSlots(n int) { r.slots, r.use = n, make([]use, n) }

// memoryName is the name under which the ring's memory is offered.
func (r *ring) memoryName() string { return fmt.Sprintf("ring %d: %s", r.id.number, r.name) }

// greet waits for the other end's next message while the ring is being set up.
func (r *ring) greet(ctx context.Context, op string) (m ringMessage, err error) {
	for {
		select {
		case m = <-r.heard: // rather than the end of ctx
		default:
			select {
			case m = <-r.heard:
			case <-r.session.Done():
				return m, renamed(op, r.session.Err())
			case <-ctx.Done():
				return m, &cuda.Error{Op: op, Err: ctx.Err(), Detail: "the other end has not set up ring " + r.name}
			}
		}
		if !r.session.rings.concerns(m, r) {
			m.drop() // it is about one that was given up
			continue
		}
		if m.Closed || m.Error != "" {
			return m, &cuda.Error{Op: op, Err: ErrLeft, Detail: "the other end of ring " + r.name + " has failed: " + m.Error}
		}
		return m, nil
	}
}

func (r *ring) say(m ringMessage) error {
	m.Ring, m.Producer = r.id.number, r.id.ours
	payload, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return r.session.sendTo(ringsChannel, payload, m.file)
}

// drained waits until the receiver of a channel has been told all that has arrived.
func (s *Session) drained(channel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.channels.running || s.channels.unclaimed(channel) > 0 && s.channels.receivers[channel] != nil {
		s.cond.Wait()
	}
}

// free gives up the gate and the memory.
func (r *ring) free(memory io.Closer) error {
	if r.gate == nil {
		return memory.Close()
	}
	r.gate.fail(&cuda.Error{Op: "ring", Err: cuda.ErrClosed}) // nothing waits any more
	return errors.Join(memory.Close(), r.gate.close())
}

// fits refuses streams that cannot order a ring's batches: what is captured runs later, or
// never, or twice.
func (r *ring) fits(op string, s *cuda.Stream) error {
	switch d := s.Device(); {
	case d == nil:
		return invalid(op, "the stream is nil")
	case d.Driver() != r.dev.Driver():
		return &cuda.Error{Op: op, Err: cuda.ErrDeviceMismatch, Detail: "they come from two different drivers: the stream must be of the driver that the ring was made with"}
	case d != r.dev:
		return &cuda.Error{Op: op, Err: cuda.ErrDeviceMismatch, Detail: fmt.Sprintf("the ring is on device %d, the stream of device %d", r.dev.Index(), d.Index())}
	}
	capturing, err := s.IsCapturing()
	switch {
	case err != nil:
		return renamed(op, err)
	case capturing:
		return &cuda.Error{Op: op, Err: cuda.ErrCapturing, Detail: "a ring's batches cannot be part of a graph"}
	}
	return nil
}

// until runs f, whose context ends with the ring too.
func (r *ring) until(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.halt, cancel)()
	err := f(ctx)
	if r.halt.Err() != nil && errors.Is(err, context.Canceled) {
		return context.Cause(r.halt)
	}
	return err
}

// await is the gate's, and ends with the ring.
func (r *ring) await(ctx context.Context, s *cuda.Stream, slot int, round uint64) error {
	return r.until(ctx, func(ctx context.Context) error { return r.gate.await(ctx, s, slot, round) })
}

func (r *ring) inUse(op string) error {
	return invalid(op, "ring %s is there already", r.name)
}

func noBatch(op string) error {
	return invalid(op, "it is not of a ring: Next has failed")
}

// isUnsupported reports whether the device lacks what counters need.
func isUnsupported(err error) bool { return errors.Is(err, errors.ErrUnsupported) }
