package cuda

import (
	"fmt"

	"github.com/purecuda/cuda/driver"
)

// Copy enqueues on s a copy of all elements of src to dst, which must have the
// same length (cuMemcpyAsync). Host to device, device to host, device to device
// and from one device to another are all the same call. It returns at once:
// neither memory may be touched, and no stream that is not ordered after may
// use dst, until the copy is done. Copy parts by [Buffer.Range], rows of a matrix
// by [Copy2D], and Go's own slices by [CopyFromSlice] and [CopyToSlice].
//
// A copy between two devices, of which neither has access to the other's memory
// ([Device.EnablePeerAccess]), goes through the host, and the call blocks
// meanwhile (cuMemcpyPeerAsync); in a capture it is refused. A copy from host
// memory to host memory is done by the host itself: the call may block until the
// stream has come to it.
func Copy[T Element](s *Stream, dst, src Memory[T]) error {
	const op = "copy"
	p, err := holdPair(op, s, dst, src)
	if err != nil {
		return err
	}
	defer p.release(s)
	if dst.Len() != src.Len() {
		return invalid(op, fmt.Sprintf("the destination has %d elements, the source %d", dst.Len(), src.Len()))
	}
	return check(op, s.copy(&p, src.bytes()))
}

// pair is the two ends of a copy.
type pair struct {
	to, from     *handle
	toAt, fromAt driver.DevicePtr
}

// holdPair takes references to both memories and to s, which the caller releases.
func holdPair[T Element](op string, s *Stream, dst, src Memory[T]) (p pair, err error) {
	if dst == nil || src == nil {
		return p, invalid(op, "the memory is nil")
	}
	if p.to, p.toAt, err = dst.hold(op); err != nil {
		return p, err
	}
	if p.from, p.fromAt, err = src.hold(op); err != nil {
		p.to.release()
		return p, err
	}
	if err = s.acquire(op); err == nil {
		if p.to.dev.driver == s.dev.driver && p.from.dev.driver == s.dev.driver {
			return p, nil
		}
		err = twoDrivers(op)
		s.h.release()
	}
	p.to.release()
	p.from.release()
	return p, err
}

func (p *pair) release(s *Stream) {
	s.h.release()
	p.from.release()
	p.to.release()
}

// copy enqueues a copy of memory that the caller holds.
func (s *Stream) copy(p *pair, bytes uint64) driver.Result {
	in, to, from := s.capture(), p.to, p.from
	var r driver.Result
	if to.dev != from.dev && to.onDevice() && from.onDevice() && in == nil {
		r = s.copyPeer(p, bytes)
	} else {
		r = s.copyAsync(p, bytes)
	}
	if r == driver.Success {
		to.usedOn(s, in)
		from.usedOn(s, in)
	}
	return r
}

func (s *Stream) copyAsync(p *pair, bytes uint64) driver.Result {
	if s.h.native != 0 && s.reaches(p.to) && s.reaches(p.from) && s.dev.driver.captures.active.Load() == 0 { // as callFor, for speed
		r := s.dev.driver.api.MemcpyAsync(p.toAt, p.fromAt, bytes, driver.Stream(s.h.native))
		if r != driver.ErrorInvalidContext {
			return r
		}
	}
	return s.callFor(p.to, p.from, func(api *driver.API, st driver.Stream) driver.Result {
		return api.MemcpyAsync(p.toAt, p.fromAt, bytes, st)
	})
}

// reaches reports whether the driver needs no context to see that the memory of h can be
// reached.
func (s *Stream) reaches(h *handle) bool { return h.kind != kindPoolBuffer || h.dev == s.dev }

// callFor is call for work on two pieces of memory. If one is from a pool of
// another device than s is of, the driver looks at the calling thread's context to
// see whether it can be reached. A default stream is found by that context, so it
// cannot be another's.
func (s *Stream) callFor(a, b *handle, f func(api *driver.API, h driver.Stream) driver.Result) driver.Result {
	for _, h := range [...]*handle{a, b} {
		if !s.reaches(h) && s.h.native != 0 {
			if s.h.aloneIfCaptured() {
				defer s.dev.driver.captures.touching.Unlock()
			}
			return h.dev.bound(func(api *driver.API) driver.Result { return f(api, driver.Stream(s.h.native)) })
		}
	}
	return s.call(f)
}

// copyPeer copies from one device to another. The driver is told both devices,
// because it does not find out the one of pool memory without access to it. It
// cannot do this in a capture.
func (s *Stream) copyPeer(p *pair, bytes uint64) driver.Result {
	toContext, r := p.to.dev.context()
	if r != driver.Success {
		return r
	}
	fromContext, r := p.from.dev.context()
	if r != driver.Success {
		return r
	}
	return s.call(func(api *driver.API, st driver.Stream) driver.Result {
		return api.MemcpyPeerAsync(p.toAt, toContext, p.fromAt, fromContext, bytes, st)
	})
}

// onDevice reports whether h is device memory.
func (h *handle) onDevice() bool { return h.kind == kindBuffer || h.kind == kindPoolBuffer }
