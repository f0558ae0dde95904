package ipc

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/testgpu"
)

// again makes the ring once more under the same name, and sends something. The
// producer and the consumer try until the other end has released the one before.
func again(t *testing.T, d *duo) {
	t.Helper()
	ctx := within(t, 10*time.Second)
	var p *Producer[uint32]
	made := testgpu.Go(func() (err error) {
		for {
			try, cancel := context.WithTimeout(ctx, time.Second)
			p, err = NewProducer[uint32](try, d.a.Session, d.a.dev, "r", 2, 4)
			cancel()
			if err == nil || ctx.Err() != nil {
				return err
			}
			time.Sleep(time.Millisecond)
		}
	})
	var c *Consumer[uint32]
	for err := errors.New("not tried"); err != nil; time.Sleep(time.Millisecond) {
		c, err = NewConsumer[uint32](ctx, d.b.Session, d.b.drv, "r")
		require.NoError(t, ctx.Err())
	}
	require.NoError(t, testgpu.Receive(t, made))
	for n := range uint32(5) {
		send(t, p, d.a.stream, n)
		take(t, c, d.b.stream).has(t, n)
	}
	require.NoError(t, p.Close())
	require.NoError(t, c.Close())
	freed(t, d)
}

func TestRingAgain(t *testing.T) {
	for name, before := range map[string]func(t *testing.T, d *duo){
		"the producer closed first": func(t *testing.T, d *duo) {
			p, c := d.ring(t, 2, 4)
			send(t, p, d.a.stream, 1)
			require.NoError(t, p.Close())
			ends(t, c, d.b.stream, 1)
			require.NoError(t, c.Close())
		},
		"the consumer closed first": func(t *testing.T, d *duo) {
			p, c := d.ring(t, 2, 4)
			send(t, p, d.a.stream, 1)
			require.NoError(t, c.Close())
			testgpu.WaitUntil(t, func() bool { return p.Flush(t.Context()) != nil })
			require.NoError(t, p.Close())
		},
		"the elements were others": func(t *testing.T, d *duo) {
			made := testgpu.Go(func() error {
				_, err := NewProducer[uint32](within(t, 10*time.Second), d.a.Session, d.a.dev, "r", 2, 4)
				return err
			})
			_, err := NewConsumer[uint64](within(t, 10*time.Second), d.b.Session, d.b.drv, "r")
			require.ErrorIs(t, err, cuda.ErrInvalid)
			require.ErrorIs(t, testgpu.Receive(t, made), cuda.ErrInvalid)
		},
		"no consumer came in time": func(t *testing.T, d *duo) {
			_, err := NewProducer[uint32](within(t, testgpu.Soon), d.a.Session, d.a.dev, "r", 2, 4)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		},
		"no producer came in time": func(t *testing.T, d *duo) {
			_, err := NewConsumer[uint32](within(t, testgpu.Soon), d.b.Session, d.b.drv, "r")
			require.ErrorIs(t, err, context.DeadlineExceeded)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDuo(t)
			before(t, d)
			freed(t, d)
			for range 3 {
				again(t, d)
			}
		})
	}
}
