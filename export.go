package cuda

import (
	"fmt"

	"github.com/purecuda/cuda/driver"
)

// Export returns a token by which other processes on this machine can import the
// event, see [Driver.ImportEvent]. What holds for [Event.IPCHandle] holds for it: the
// event must stay open, and this process alive, for as long as others use it.
// An event of another process, opened here, gives the token that it was imported by;
// one that was opened by its handle alone cannot be exported, as it is not known whose
// it is.
func (e *Event) Export() (Token, error) {
	const op = "event export"
	bytes, err := e.ipcHandle(op)
	if err != nil {
		return Token{}, err
	}
	h, err := e.acquire(op)
	if err != nil {
		return Token{}, err
	}
	defer h.release()
	return h.token(op, Token{Kind: EventToken, Handle: bytes})
}

// IPCHandle returns the 64 bytes by which another process on this machine can open
// the allocation that b is of, or is a part of (cuIpcGetMemHandle): with
// [Device.OpenMemory], or by other libraries. Only memory of [Alloc] has one; for
// that of [AllocAsync] the error matches [ErrNotInterprocess]. The memory must stay
// open for as long as another process uses it.
//
// Whoever knows the handle can open the memory, whichever user it is: treat it like a
// password.
func (b *Buffer[T]) IPCHandle() (driver.IPCMemHandle, error) {
	const op = "buffer ipc handle"
	h, _, err := b.hold(op)
	if err != nil {
		return driver.IPCMemHandle{}, err
	}
	defer h.release()
	return h.ipcMemHandle(op)
}

// Export returns a token by which other processes on this machine can import the
// memory, see [ImportBuffer]: all of b, which may be a [Buffer.Range]. What holds for
// [Buffer.IPCHandle] holds for it. Memory of another process, opened here, gives a
// token of its own process again; if it was opened by its handle alone it cannot be
// exported, as it is not known whose it is.
func (b *Buffer[T]) Export() (Token, error) {
	const op = "buffer export"
	h, at, err := b.hold(op)
	if err != nil {
		return Token{}, err
	}
	defer h.release()
	bytes, err := h.ipcMemHandle(op)
	if err != nil {
		return Token{}, err
	}
	return h.token(op, Token{Kind: MemoryToken, Handle: bytes, Offset: uint64(at) - h.native, Size: b.bytes()})
}

// ipcMemHandle returns the driver's handle of an allocation that the caller holds.
func (h *handle) ipcMemHandle(op string) (driver.IPCMemHandle, error) {
	if h.shared != nil {
		return h.shared.handle(), nil
	}
	if h.kind != kindBuffer || h.mem.home != nil {
		return driver.IPCMemHandle{}, &Error{Op: op, Err: ErrNotInterprocess, Detail: "memory of AllocAsync is the pool's, which gives no handles out; share memory of Alloc"}
	}
	var bytes driver.IPCMemHandle
	r := h.dev.driver.relaxed(func() driver.Result {
		return h.dev.bound(func(api *driver.API) (r driver.Result) {
			bytes, r = api.IPCGetMemHandle(driver.DevicePtr(h.native))
			return r
		})
	})
	if r != driver.Success {
		return bytes, &Error{Op: op, Code: r, Detail: fmt.Sprintf("device %d may be of a kind whose memory cannot be shared", h.dev.index)}
	}
	h.dev.driver.sharing.give(sharedKey{MemoryToken, bytes}, h)
	return bytes, nil
}

// token fills in where and whose h is, which the caller holds.
func (h *handle) token(op string, t Token) (Token, error) {
	id, err := h.dev.UUID()
	if err != nil {
		return Token{}, err
	}
	t.Device = id
	if h.shared != nil && h.shared.imported != nil {
		if t.Process = h.shared.imported.process; t.Process == (driver.Process{}) {
			return Token{}, invalid(op, "it is another process's, and was opened by a handle that does not say whose")
		}
		return t, nil
	}
	t.Process, err = h.dev.driver.FindProcess(0)
	if err != nil {
		return Token{}, named(err, op)
	}
	return t, nil
}
