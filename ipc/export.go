package ipc

import (
	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
)

// ExportEvent returns a token by which other processes on this machine can import the
// event, see [ImportEvent]. What holds for [cuda.Event.IPCHandle] holds for it: the event
// must stay open, and this process alive, for as long as others use it. An event of
// another process, opened here, gives the token that it was imported by; one that was
// opened by its handle alone cannot be exported, as it is not known whose it is.
func ExportEvent(e *cuda.Event) (Token, error) {
	const op = "event export"
	h, err := e.IPCHandle()
	if err != nil {
		return Token{}, renamed(op, err)
	}
	exporter, foreign := e.Exporter()
	dev := e.Device() // asked last: a closed event has none, and no exporter either
	if dev == nil {
		return Token{}, &cuda.Error{Op: op, Err: cuda.ErrClosed, Detail: "the event"}
	}
	return Token{Kind: EventToken, Handle: h}.of(op, dev, exporter, foreign)
}

// ExportBuffer returns a token by which other processes on this machine can import the
// memory, see [ImportBuffer]: all of b, which may be a [cuda.Buffer.Range]. What holds for
// [cuda.Buffer.IPCHandle] holds for it. Memory of another process, opened here, gives a
// token of its own process again; if it was opened by its handle alone it cannot be
// exported, as it is not known whose it is.
func ExportBuffer[T cuda.Element](b *cuda.Buffer[T]) (Token, error) {
	return exportMemory("buffer export", b)
}

// memory is a *cuda.Buffer of any element type.
type memory interface {
	Shared
	IPCHandle() (driver.IPCMemHandle, error)
	Allocation() (offset, size uint64)
}

func exportMemory(op string, b memory) (Token, error) {
	h, err := b.IPCHandle()
	if err != nil {
		return Token{}, renamed(op, err)
	}
	exporter, foreign := b.Exporter()
	t := Token{Kind: MemoryToken, Handle: h}
	t.Offset, t.Size = b.Allocation()
	return t.of(op, b.Device(), exporter, foreign)
}

// of completes a token with the device, and with what [cuda.Event.Exporter] says.
func (t Token) of(op string, dev *cuda.Device, exporter driver.Process, foreign bool) (_ Token, err error) {
	if t.Device, err = dev.UUID(); err != nil {
		return Token{}, renamed(op, err)
	}
	switch {
	case !foreign:
		if exporter, err = dev.Driver().FindProcess(0); err != nil {
			return Token{}, renamed(op, err)
		}
	case exporter == driver.Process{}:
		return Token{}, invalid(op, "it is another process's, and was opened by a handle that does not say whose")
	}
	t.Process = exporter
	return t, nil
}
