package native

import (
	"sync/atomic"

	"github.com/purecuda/cuda/internal/refs"
)

// place is a record's place in the work of a stream: the stream's serial, above the number
// of the record. A record's number is drawn before its driver call; a use of memory notes
// the number that the stream has come to after its driver call. So a record with a greater
// number than a use's comes after that use. 0 is no place.
type place uint64

const (
	numbers   = 1<<refs.NumberBits - 1
	maxSerial = 1<<(64-refs.NumberBits) - 1
)

func makePlace(serial, number uint64) place { return place(serial<<refs.NumberBits | number) }

func (p place) serial() uint64 { return uint64(p) >> refs.NumberBits }
func (p place) number() uint64 { return uint64(p) & numbers }

// joins are places that a stream has waited for, each in the slot of its stream's serial.
// A stream that waits for an event notes the event's place there. What is overwritten, by
// another stream of the same slot, costs an event when memory is freed, and nothing else.
type joins [8]atomic.Uint64

func (j *joins) slot(p place) *atomic.Uint64 { return &j[p.serial()%uint64(len(j))] }

func (j *joins) note(p place) {
	if p.serial() != 0 {
		store(j.slot(p), uint64(p))
	}
}

// after reports whether a record after the use at p was waited for.
func (j *joins) after(p place) bool {
	joined := place(j.slot(p).Load())
	return p.serial() != 0 && joined.serial() == p.serial() && joined.number() > p.number()
}
