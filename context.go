package cuda

import (
	"context"
	"fmt"
)

// current is a context.Context that carries the current device and its current
// stream, and through rest those of the other devices. It is a context itself,
// and not made by context.WithValue, so that finding it is one type assertion
// where nothing else was put on top.
type current struct {
	context.Context
	device *Device
	stream *Stream
	rest   *current // the next outer choice for each other device
}

type currentKey struct{}

// Value finds the innermost current through whatever contexts stand on top.
func (c *current) Value(key any) any {
	if _, ok := key.(currentKey); ok {
		return c
	}
	return c.Context.Value(key)
}

// String keeps a printed chain of contexts readable.
func (c *current) String() string {
	return fmt.Sprintf("%v.WithStream(device %d)", c.Context, c.device.Index())
}

func fromContext(ctx context.Context) *current {
	if ctx == nil {
		return nil
	}
	if c, ok := ctx.(*current); ok {
		return c
	}
	c, _ := ctx.Value(currentKey{}).(*current)
	return c
}

// WithStream returns a context in which s is the current stream of its device,
// and that device the current one: what "with torch.cuda.stream(s)" is in
// PyTorch. Leaving it is using the outer context. Streams of other devices stay
// as they were. A nil stream changes nothing. It makes no driver call: the
// choice concerns only code that asks the context.
func WithStream(ctx context.Context, s *Stream) context.Context {
	if !s.usable() {
		return ctx
	}
	return with(ctx, s.dev, s)
}

// WithDevice returns a context in which d is the current device; the current
// stream of each device stays as it was. A nil device changes nothing.
func WithDevice(ctx context.Context, d *Device) context.Context {
	if d == nil {
		return ctx
	}
	return with(ctx, d, d.CurrentStream(ctx))
}

func with(ctx context.Context, d *Device, s *Stream) context.Context {
	return &current{Context: ctx, device: d, stream: s, rest: fromContext(ctx).without(d)}
}

// without returns the chain c less the choices for d, so that a chain is never
// longer than there are devices, however deep contexts are nested.
func (c *current) without(d *Device) *current {
	found := false
	for n := c; n != nil; n = n.rest {
		found = found || n.device == d
	}
	if !found {
		return c
	}
	if c.device == d {
		return c.rest
	}
	return &current{Context: c.Context, device: c.device, stream: c.stream, rest: c.rest.without(d)}
}

// CurrentStream returns the stream of d that ctx carries, or d's default stream
// if none was set.
func (d *Device) CurrentStream(ctx context.Context) *Stream {
	for c := fromContext(ctx); c != nil; c = c.rest {
		if c.device == d {
			return c.stream
		}
	}
	return d.DefaultStream()
}

// CurrentStream returns the current stream of the current device.
func CurrentStream(ctx context.Context) (*Stream, error) {
	d, err := CurrentDevice(ctx)
	if err != nil {
		return nil, err
	}
	return d.CurrentStream(ctx), nil
}

// CurrentDevice returns the device that ctx carries, or device 0 of the
// process-wide default driver if none was set; only opening that can fail.
func CurrentDevice(ctx context.Context) (*Device, error) {
	if c := fromContext(ctx); c != nil {
		return c.device, nil
	}
	return OpenDevice(0)
}
