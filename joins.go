package cuda

import (
	"sync"
	"sync/atomic"
)

// joins remembers which uses of other streams a stream has waited for, so that
// memory whose home it is can be freed without waiting for them again. It knows
// the last few streams only, and nothing of what those had joined themselves: what
// is not known costs a wait on the device, no more.
type joins struct {
	mu   sync.Mutex
	last [16]join
	next int

	// latest is the newest of them, for who may not wait for the mutex. turn is odd
	// while it changes.
	turn   atomic.Uint32
	latest struct {
		stream atomic.Pointer[handle]
		use    atomic.Uint64
	}
}

// join says that all uses of memory by a stream up to one have been waited for.
type join struct {
	stream *handle
	use    uint64
}

// joined notes that the stream of h now waits for the first uses of s. It never
// waits for another goroutine: then it forgets.
func (h *handle) joined(s *handle, uses uint64) {
	if s == h {
		return
	}
	j := h.joins.Load()
	if j == nil {
		h.joins.CompareAndSwap(nil, new(joins))
		j = h.joins.Load()
	}
	if !j.mu.TryLock() {
		return
	}
	defer j.mu.Unlock()
	j.turn.Add(1)
	j.latest.stream.Store(s)
	j.latest.use.Store(uses)
	j.turn.Add(1)
	for i := range j.last {
		if j.last[i].stream == s {
			j.last[i].use = max(j.last[i].use, uses)
			return
		}
	}
	j.last[j.next] = join{s, uses}
	j.next = (j.next + 1) % len(j.last)
}

// joinedLately reports whether the stream of h is known to have waited for a use of s,
// and that was the last thing that it waited for. It is quick.
func (h *handle) joinedLately(s *handle, use uint64) bool {
	j := h.joins.Load()
	if j == nil {
		return false
	}
	turn := j.turn.Load()
	return turn&1 == 0 && j.latest.stream.Load() == s && j.latest.use.Load() >= use && j.turn.Load() == turn
}

// hasJoined reports whether the stream of h is known to have waited for a use
// of s.
func (h *handle) hasJoined(s *handle, use uint64) bool {
	j := h.joins.Load()
	if j == nil {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, k := range j.last {
		if k.stream == s {
			return k.use >= use
		}
	}
	return false
}
