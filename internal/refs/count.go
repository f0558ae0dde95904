// Package refs decides when a native object of the driver can be destroyed: when its
// owner has closed it and no call uses it any more. It is to this module what
// internal/poll's fdMutex is to package os.
//
// Every object is kept alive in one of two ways. Memory, modules, graphs and imports
// have a [Count]: a call acquires a reference before it uses the object and releases it
// afterwards. Streams have a [Gate], a count with which every call on the stream is
// counted, that numbers the records on the stream, and that can be halted.
package refs

import "sync/atomic"

// Count counts the references to an object. The zero value is open and has none. All
// methods may be called from any goroutine.
//
// The caller to which a method reports that it was the last destroys the object. There is
// exactly one.
type Count struct{ word atomic.Uint64 } // bit 63: closed; the rest: references

const closed = 1 << 63

// Acquire takes a reference, which the caller releases; false once the object is closed.
func (c *Count) Acquire() bool {
	for {
		w := c.word.Load()
		if w&closed != 0 {
			return false
		}
		if c.word.CompareAndSwap(w, w+1) {
			return true
		}
	}
}

// AcquireUsed takes a reference unless the object is closed and nobody uses it: it may
// have been closed by its owner.
func (c *Count) AcquireUsed() bool {
	for {
		w := c.word.Load()
		if w == closed {
			return false
		}
		if c.word.CompareAndSwap(w, w+1) {
			return true
		}
	}
}

// Release gives a reference back. last: the object is closed and the caller destroys it.
func (c *Count) Release() (last bool) { return c.word.Add(^uint64(0)) == closed }

// Close closes the object for its owner; first is false if that was done before. last:
// nobody uses it, and the caller destroys it.
func (c *Count) Close() (first, last bool) {
	w := c.word.Or(closed)
	return w&closed == 0, w == 0
}

// Closed reports whether the owner has closed the object.
func (c *Count) Closed() bool { return c.word.Load()&closed != 0 }
