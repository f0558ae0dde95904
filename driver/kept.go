package driver

import "sync"

// Kept notes what is kept for later use, or until the process ends, on purpose, so that whoever
// looks for leaks lets it pass. A nil *Kept notes nothing.
type Kept struct{ natives sync.Map }

// Add notes a native handle, or the address of memory.
func (k *Kept) Add(native uint64) {
	if k != nil {
		k.natives.Store(native, nil)
	}
}

// Remove notes that a native handle is not kept any more.
func (k *Kept) Remove(native uint64) {
	if k != nil {
		k.natives.Delete(native)
	}
}

// Has reports whether a handle or an address was noted.
func (k *Kept) Has(native uint64) bool {
	if k == nil {
		return false
	}
	_, ok := k.natives.Load(native)
	return ok
}
