package cuda

import "sync/atomic"

// tally counts what happens for those who look at it now and then. What happens between
// two looks has one number, so that to note it mostly costs no more than to read it.
type tally struct{ word atomic.Uint64 } // bit 0: somebody has looked since

const lookedAt = 1

// note is called after something has happened. It returns its number, which is greater
// than what any look before returned.
func (t *tally) note() uint64 {
	for {
		w := t.word.Load()
		if w != 0 && w&lookedAt == 0 {
			return w
		}
		next := w&^lookedAt + 2
		if t.word.CompareAndSwap(w, next) {
			return next
		}
	}
}

// look returns the greatest number so far, 0 if nothing has happened. What has one up to
// this had happened before.
func (t *tally) look() uint64 {
	w := t.word.Load()
	if w != 0 && w&lookedAt == 0 {
		w = t.word.Or(lookedAt)
	}
	return w &^ lookedAt
}
