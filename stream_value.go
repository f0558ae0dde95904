package cuda

import (
	"errors"

	"github.com/purecuda/cuda/driver"
)

// WaitValue makes the work enqueued on s from now on wait until the first element of
// word has reached value (cuStreamWaitValue32): until int32(*word-value) >= 0, so that
// a counter may wrap around. It returns at once. Whoever can write to word ends the
// wait: another stream by [Stream.WriteValue], a kernel, and, if it is pinned host
// memory, the CPU by atomic.StoreUint32, of this process or of another one that shares
// the memory. Nothing else ends it; until then waits for s on the host do not end
// either, and calls that enqueue on s, or on a stream that shares hardware with it, may
// block when some hundred operations are queued.
//
// The memory is that of [Alloc], [AllocHost] or [RegisterHost], and not of [AllocAsync].
// Devices and drivers without such operations (before CUDA 11.7) answer with an error
// that matches errors.ErrUnsupported.
func (s *Stream) WaitValue(word Memory[uint32], value uint32) error {
	return s.value("stream wait value", word, func(api *driver.API, st driver.Stream, at driver.DevicePtr) driver.Result {
		return api.StreamWaitValue32(st, at, value, driver.StreamWaitValueGEQ)
	})
}

// WriteValue writes value to the first element of word when s has come to it
// (cuStreamWriteValue32). It returns at once. Who sees the value sees what the work
// before it wrote too.
func (s *Stream) WriteValue(word Memory[uint32], value uint32) error {
	return s.value("stream write value", word, func(api *driver.API, st driver.Stream, at driver.DevicePtr) driver.Result {
		return api.StreamWriteValue32(st, at, value, 0)
	})
}

func (s *Stream) value(op string, word Memory[uint32], f func(*driver.API, driver.Stream, driver.DevicePtr) driver.Result) error {
	if word == nil {
		return invalid(op, "the memory is nil")
	}
	h, at, err := word.hold(op)
	if err != nil {
		return err
	}
	defer h.release()
	if err := s.acquire(op); err != nil {
		return err
	}
	defer s.h.release()
	switch {
	case word.Len() == 0:
		return invalid(op, "the memory has no elements")
	case h.dev.driver != s.dev.driver:
		return twoDrivers(op)
	case h.kind == kindPoolBuffer:
		return invalid(op, "the driver takes no memory of AllocAsync for this; take it from Alloc or AllocHost")
	}
	in := s.capture()
	r := s.call(func(api *driver.API, st driver.Stream) driver.Result { return f(api, st, at) })
	if r == driver.ErrorNotSupported || r == driver.ErrorCallRequiresNewerDriver {
		return &Error{Op: op, Code: r, Err: errors.ErrUnsupported, Detail: "the device has no memory operations for streams"}
	}
	if r == driver.Success {
		h.usedOn(s, in)
	}
	return check(op, r)
}
