package main

import (
	"bytes"
	"fmt"
)

// The bytes of the batches are such that each single one tells which batch it
// is of: at the same place no two batches have the same byte, and none has the
// poison. So a byte that was read too early, overwritten too soon or never
// copied cannot look right.
const (
	// period is the number of batches that can be told apart.
	period = 251
	// poison is what buffers hold before they hold a batch. Batches consist of
	// the bytes 1 to period.
	poison = 0xff
	// runLength is the length over which the bytes 1 to period repeat. Each next
	// run begins shift bytes later in them, so that runs cannot change places
	// unseen.
	runLength = 256 * period
	shift     = 3
)

// template holds every run that a batch can have, each beginning at one of its
// first period bytes.
var template = func() []byte {
	t := make([]byte, runLength+period)
	for i := range t {
		t[i] = byte(1 + i%period)
	}
	return t
}()

// patternRun returns the run of the batch that begins at byte n*runLength.
func patternRun(batch, n int) []byte {
	at := (batch + n*shift) % period
	return template[at : at+runLength]
}

// write fills b with the bytes of the batch.
func write(b []byte, batch int) {
	for n := 0; len(b) > 0; n++ {
		b = b[copy(b, patternRun(batch, n)):]
	}
}

// wrong is a result that is not the batch.
type wrong struct {
	batch  int
	first  int // the place of the first wrong byte
	got    byte
	want   byte
	wrongs int // how many bytes are wrong
	size   int
}

// compare returns nil if b is the batch.
func compare(b []byte, batch int) *wrong {
	var w *wrong
	for n, at := 0, 0; at < len(b); n, at = n+1, at+runLength {
		got := b[at:min(at+runLength, len(b))]
		want := patternRun(batch, n)[:len(got)]
		if bytes.Equal(got, want) {
			continue
		}
		for i := range got {
			if got[i] == want[i] {
				continue
			}
			if w == nil {
				w = &wrong{batch: batch, first: at + i, got: got[i], want: want[i], size: len(b)}
			}
			w.wrongs++
		}
	}
	return w
}

// Error says what is wrong, and which order was broken, as far as the byte
// tells.
func (w *wrong) Error() string {
	return fmt.Sprintf("batch %d: %d of %d bytes are wrong, the first at %d: %#02x instead of %#02x, %s",
		w.batch, w.wrongs, w.size, w.first, w.got, w.want, w.source())
}

func (w *wrong) source() string {
	if w.got < 1 || w.got > period {
		return "which is of no batch: it was read before a batch was there, or is damaged"
	}
	n := w.first / runLength
	of := (int(w.got) - 1 - w.first%runLength - n*shift) % period
	of = (of%period + period) % period
	if of > w.batch {
		return fmt.Sprintf("as in batch %d: a buffer was overwritten before it had been read", of)
	}
	return fmt.Sprintf("as in batch %d: a buffer was read before it had been written", of)
}
