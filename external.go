package cuda

import (
	"fmt"

	"github.com/purecuda/cuda/driver"
)

// ExternalStream wraps a stream made elsewhere: by a C library, PyTorch, or any
// protocol that passes handles. The wrapper never destroys it; whoever made it
// must keep it alive. Handles 0 and 1 give the default stream. Handle 2, the
// per-thread default stream, is refused: goroutines have no thread.
//
// The driver cannot check a handle that was never valid: a made-up one may
// crash the process. A stream that is not of the device's primary context is
// an error.
func (d *Device) ExternalStream(native driver.Stream) (*Stream, error) {
	const op = "external stream"
	if err := d.usable(op); err != nil {
		return nil, err
	}
	switch native {
	case 0, driver.StreamLegacy:
		return d.DefaultStream(), nil
	case driver.StreamPerThread:
		return nil, &Error{Op: op, Code: driver.ErrorNotSupported,
			Detail: "handle 2 is the calling thread's default stream, and goroutines have no thread; create a stream instead"}
	}
	own, r := d.context()
	if r != driver.Success {
		return nil, failure(op, r)
	}
	var of driver.Context
	r = d.call(func(api *driver.API) (r driver.Result) {
		of, r = api.StreamGetCtx(native)
		return r
	})
	if r != driver.Success {
		return nil, failure(op, r)
	}
	if of != own {
		return nil, &Error{Op: op, Err: ErrDeviceMismatch,
			Detail: fmt.Sprintf("stream %#x belongs to another device, or to a context other than device %d's primary one", uintptr(native), d.index)}
	}
	return d.wrap(native, kindExternalStream), nil
}
