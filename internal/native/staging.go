package native

import (
	"context"
	"slices"
	"sync"
	"unsafe"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/wait"
)

// staging is a device's pinned memory through which Go's own slices are copied: the driver
// must not see a Go pointer that it might keep. Its chunks are made when they are first
// needed and kept until the process ends, because freeing pinned memory stops all enqueueing
// until the device is idle.
type staging struct {
	mu     sync.Mutex
	chunks []*chunk
	given  given // of calls that wait for a chunk; nil if there are none
	// made has the address of each chunk that was ever made. It has no part in mu, which is
	// held in calls of the driver: a simulated one asks retains in turn.
	made sync.Map
}

// chunk is a piece of staging memory, with one copy after the other.
type chunk struct {
	at    driver.DevicePtr
	bytes []byte
	taken bool    // by a call
	on    *Stream // of the copy that used it last
	after *Mark   // recorded behind that; nil if it is known to be done
}

// A device has so many chunks. A stream that has none in flight gets one more, so that it
// does not have to wait for streams that are held up, until there are maxChunks.
const (
	chunkSize = 1 << 20
	chunks    = 8
	maxChunks = 64
)

// ErrNilContext is the error of a wait without a context.
var ErrNilContext = &Refusal{Err: ErrInvalid, Detail: "the context is nil: use context.Background()"}

// takeChunk takes a chunk for a copy on s, which the caller gives back. Without block it
// returns nil if there is none.
func (s *Stream) takeChunk(ctx context.Context, block bool) (*chunk, error) {
	for {
		c, pending, err := s.tryChunk(block)
		if c != nil || err != nil || !block {
			return c, err
		}
		err = ErrNilContext
		if ctx != nil { // which will be free first nobody knows: a stream may be held up
			_, err = wait.Any(ctx, pending)
		}
		for _, p := range pending {
			p.Point.(point).EndWait()
		}
		if err != nil && (ctx == nil || ctx.Err() != nil) {
			return nil, err // others will be met again
		}
	}
}

// given is a point that is done when a call gives a chunk back.
type given chan struct{}

func (g given) Poll() (bool, error) {
	select {
	case <-g:
		return true, nil
	default:
		return false, nil
	}
}

func (given) Place() (queue any, first, last uint64) { return nil, 0, 0 }

func (given) EndWait() {}

// tryChunk takes a chunk that no copy uses, or makes one. If it may not, it returns what to
// wait for, if the caller will: copies in flight, and calls that have chunks.
func (s *Stream) tryChunk(wanted bool) (c *chunk, pending []wait.Pending, err error) {
	st := &s.Dev.staging
	st.mu.Lock()
	defer st.mu.Unlock()
	mine := 0
	for _, c := range st.chunks {
		if !c.taken && c.after != nil {
			done, err := c.after.Poll()
			if done || err != nil {
				c.after.EndWait()
				c.after = nil
			}
			if err != nil {
				return nil, nil, err
			}
		}
		if !c.taken && c.after == nil {
			c.taken, c.on = true, s
			return c, nil, nil
		}
		if c.on == s {
			mine++
		}
	}
	if n := len(st.chunks); n < chunks || mine == 0 && n < maxChunks {
		c, err := s.Dev.newChunk()
		if err == nil {
			c.taken, c.on = true, s
			st.chunks = append(st.chunks, c)
		}
		return c, nil, err
	}
	if !wanted {
		return nil, nil, nil
	}
	for _, c := range st.chunks {
		if !c.taken {
			c.after.state.Add(1)
			pending = append(pending, wait.Pending{Poller: &s.Dev.Poller, Point: c.after, NoSpin: true})
		}
	}
	if st.given == nil {
		st.given = make(given)
	}
	return nil, append(pending, wait.Pending{Poller: &s.Dev.Poller, Point: st.given, NoSpin: true}), nil
}

// giveChunk gives a chunk back.
func (s *Stream) giveChunk(c *chunk) {
	st := &s.Dev.staging
	st.mu.Lock()
	defer st.mu.Unlock()
	c.taken = false
	if st.given != nil {
		close(st.given)
		st.given = nil
		s.Dev.Poller.Wake()
	}
}

func (d *Device) newChunk() (*chunk, error) {
	p, r := d.mustOpen().QuietBound.MemHostAlloc(chunkSize, driver.MemHostAllocPortable)
	if r != driver.Success {
		return nil, r
	}
	d.staging.made.Store(uint64(uintptr(p)), nil)
	return &chunk{at: driver.HostPtr(p), bytes: unsafe.Slice((*byte)(p), chunkSize)}, nil
}

// retains reports whether memory at an address is a chunk.
func (st *staging) retains(at uint64) bool {
	_, made := st.made.Load(at)
	return made
}

// stage enqueues a copy between c and memory, and records an event behind it.
func (s *Stream) stage(c *chunk, m *Memory, to, from driver.DevicePtr, n int) error {
	if err := s.enterUncaptured(); err != nil { // for each chunk: a capture may have begun
		return err
	}
	defer s.leave()
	if r := s.reaching(m, nil).MemcpyAsync(to, from, uint64(n), s.Native); r != driver.Success {
		return s.unreachable(r, m, nil)
	}
	m.used(s)
	mark, err := s.markHere()
	if err != nil {
		s.Dev.staging.lose(c)
		return err
	}
	c.after = mark
	return nil
}

// lose gives a chunk up: nobody can tell when it is free.
func (st *staging) lose(c *chunk) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.chunks = slices.DeleteFunc(st.chunks, func(o *chunk) bool { return o == c })
}

// CopyFromSlice copies src to memory at an address, in the order of s. It returns when the
// last part was enqueued.
func (s *Stream) CopyFromSlice(ctx context.Context, m *Memory, at driver.DevicePtr, src []byte) error {
	if err := s.acquire(m); err != nil {
		return err
	}
	defer m.leave()
	if err := s.stageable(); err != nil {
		return err
	}
	for len(src) > 0 {
		c, err := s.takeChunk(ctx, true)
		if err != nil {
			return err
		}
		n := copy(c.bytes, src)
		err = s.stage(c, m, at, c.at, n)
		s.giveChunk(c)
		if err != nil {
			return err
		}
		src, at = src[n:], at+driver.DevicePtr(n)
	}
	return nil
}

// CopyToSlice copies memory at an address to dst, in the order of s, and waits until it is
// done.
func (s *Stream) CopyToSlice(ctx context.Context, dst []byte, m *Memory, at driver.DevicePtr) error {
	if err := s.acquire(m); err != nil {
		return err
	}
	defer m.leave()
	if err := s.stageable(); err != nil {
		return err
	}
	var flying []*chunk // in the order of their copies
	defer func() {
		for _, c := range flying { // the next user waits for their events
			s.giveChunk(c)
		}
	}()
	for ahead := dst; len(dst) > 0; {
		for len(ahead) > 0 {
			c, err := s.takeChunk(ctx, len(flying) == 0)
			if err != nil {
				return err
			}
			if c == nil {
				break
			}
			n := min(len(ahead), len(c.bytes))
			if err := s.stage(c, m, c.at, at, n); err != nil {
				s.giveChunk(c)
				return err
			}
			flying = append(flying, c)
			ahead, at = ahead[n:], at+driver.DevicePtr(n)
		}
		c := flying[0]
		if ctx == nil {
			return ErrNilContext
		}
		if err := s.Dev.Poller.Wait(ctx, c.after, nil, true); err != nil {
			return err
		}
		dst = dst[copy(dst, c.bytes):]
		flying = flying[1:]
		s.giveChunk(c)
	}
	return nil
}

// stageable refuses a slice copy on a stream that is closed or being captured, even if there
// is nothing to copy.
func (s *Stream) stageable() error {
	if err := s.enterUncaptured(); err != nil {
		return err
	}
	s.leave()
	return nil
}
