package driver

import "sync"

// Retained knows which native objects a user of the table keeps on purpose, for later use or
// until the process ends, so that a leak check can ignore them. The zero value is ready.
type Retained struct {
	mu  sync.Mutex
	ask []func(native uint64) bool
}

// Add adds a function that reports whether a native handle, or memory at an address, is kept
// on purpose. It is called on any goroutine. A nil *Retained ignores it.
func (k *Retained) Add(retains func(native uint64) bool) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ask = append(k.ask, retains)
}

// Has reports whether somebody keeps a native handle, or memory at an address.
func (k *Retained) Has(native uint64) bool {
	if k == nil {
		return false
	}
	k.mu.Lock()
	ask := k.ask
	k.mu.Unlock()
	for _, retains := range ask {
		if retains(native) {
			return true
		}
	}
	return false
}
