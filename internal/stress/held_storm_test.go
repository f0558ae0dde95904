package stress_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
)

// Everything at once, on streams, events and memory that are closed meanwhile: no destroyed
// handle is used, no capture is ended, nobody hangs, nothing is left.
func TestHeldCalls(t *testing.T) {
	skipShort(t)
	onHeld(t, func(t *testing.T, b *held) {
		const size = 256
		var streams [4]atomic.Pointer[cuda.Stream]
		var events [6]atomic.Pointer[cuda.Event]
		var buffers [4]atomic.Pointer[cuda.Buffer[uint32]]
		var graphs [2]atomic.Pointer[cuda.GraphExec]
		for i := range streams {
			s, err := b.NewStream(&cuda.StreamOptions{SyncWithDefault: i == 3})
			require.NoError(t, err)
			streams[i].Store(s)
		}
		for i := range events {
			events[i].Store(cuda.NewEvent(nil))
		}
		host := b.host(t, size)
		fine := func(errs ...error) error {
			for _, err := range errs {
				err = except(err, nil, cuda.ErrClosed, context.DeadlineExceeded, cuda.ErrCapturing, cuda.ErrCaptured, driver.ErrorStreamCaptureUnjoined)
				if err != nil {
					return err
				}
			}
			return nil
		}
		storm(t, b, 8, func(r *rand.Rand, g, i int) error {
			s, o := streams[r.IntN(len(streams))].Load(), streams[r.IntN(len(streams))].Load()
			n := r.IntN(len(events))
			e := events[n].Load()
			switch r.IntN(20) {
			case 0, 1, 2:
				return fine(e.Record(s))
			case 3, 4:
				return fine(e.Wait(s))
			case 5:
				_, err := e.Query()
				return fine(err)
			case 6:
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				return fine(e.SynchronizeContext(ctx))
			case 7:
				return fine(s.WaitStream(o))
			case 8:
				_, err := s.Query()
				if m := buffers[r.IntN(len(buffers))].Load(); m != nil {
					return fine(err, cuda.Copy(s, m, host), cuda.Copy(o, m, host))
				}
				return fine(err)
			case 9: // a new event for the old one
				return fine(events[n].Swap(cuda.NewEvent(nil)).Close())
			case 10:
				if r.IntN(4) > 0 {
					return fine(b.run(s, time.Duration(r.IntN(100))*time.Microsecond))
				}
				i := r.IntN(len(streams)) // a new stream for an old one
				made, err := b.NewStream(&cuda.StreamOptions{SyncWithDefault: i == 3})
				if err != nil {
					return err
				}
				return fine(streams[i].Swap(made).Close())
			case 11, 12:
				m, err := cuda.AllocAsync[uint32](s, size)
				if err != nil {
					return fine(err)
				}
				err = errors.Join(fine(cuda.Copy(s, m, host)), fine(o.WaitStream(s)), fine(cuda.Copy(o, m, host)))
				if r.IntN(2) == 0 {
					err = errors.Join(err, fine(s.WaitStream(o)))
				}
				if old := buffers[r.IntN(len(buffers))].Swap(m); old != nil {
					err = errors.Join(err, fine(old.Close()))
				}
				return err
			case 13:
				return fine(s.Synchronize())
			case 14:
				select {
				case err := <-e.Done():
					return fine(err)
				default: // forgotten
				}
			case 15, 16:
				graph, err := s.Capture(func() error {
					err := fine(e.Record(s), b.run(s, time.Microsecond))
					if m := buffers[r.IntN(len(buffers))].Load(); m != nil {
						err = errors.Join(err, fine(cuda.Copy(s, m, host)))
					}
					if r.IntN(3) == 0 {
						err = errors.Join(err, fine(o.WaitStream(s), b.run(o, time.Microsecond), s.WaitStream(o)))
					}
					return err
				})
				if graph == nil {
					return fine(err)
				}
				exec, err := graph.Instantiate()
				err = errors.Join(err, graph.Close())
				if exec != nil {
					err = errors.Join(err, fine(exec.Launch(s)))
					if old := graphs[r.IntN(len(graphs))].Swap(exec); old != nil {
						err = errors.Join(err, old.Close())
					}
				}
				return err
			case 17:
				if x := graphs[r.IntN(len(graphs))].Load(); x != nil {
					return fine(x.Launch(s))
				}
			case 18:
				return fine(e.Record(b.DefaultStream()), e.Wait(b.DefaultStream()), b.run(b.DefaultStream(), time.Microsecond))
			case 19:
				return fine(b.Synchronize())
			}
			return nil
		})
		for i := range events {
			require.NoError(t, events[i].Load().Close())
		}
		for i := range buffers {
			if m := buffers[i].Load(); m != nil {
				require.NoError(t, m.Close())
			}
		}
		for i := range graphs {
			if x := graphs[i].Load(); x != nil {
				require.NoError(t, x.Close())
			}
		}
		for i := range streams {
			require.NoError(t, streams[i].Load().Synchronize())
			require.NoError(t, streams[i].Load().Close())
		}
	})
}

// Who has recorded an event, and waits for it, waits for that record or a later one, however
// many others record the event and wait for it.
func TestHeldRecords(t *testing.T) {
	skipShort(t)
	onHeld(t, func(t *testing.T, b *held) {
		const goroutines = 6
		s, e := b.stream(t), cuda.NewEvent(nil)
		in, out, seen := b.host(t, goroutines), b.host(t, goroutines), b.host(t, goroutines)
		var own [goroutines]*cuda.Stream
		for g := range own {
			own[g] = b.stream(t)
		}
		storm(t, b, goroutines, func(r *rand.Rand, g, i int) error {
			in.Slice()[g] = uint32(i)
			if r.IntN(8) == 0 {
				if err := b.run(s, time.Duration(r.IntN(400))*time.Microsecond); err != nil {
					return err
				}
			}
			err := errors.Join(cuda.Copy(s, part(out, g, 1), part(in, g, 1)), e.Record(s))
			got := out
			if g%2 == 0 {
				err = errors.Join(err, e.Synchronize())
			} else {
				err = errors.Join(err, e.Wait(own[g]), cuda.Copy(own[g], part(seen, g, 1), part(out, g, 1)), own[g].Synchronize())
				got = seen
			}
			if v := got.Slice()[g]; err == nil && v != uint32(i) {
				err = fmt.Errorf("%d instead of %d", v, i)
			}
			return err
		})
		require.NoError(t, errors.Join(e.Close(), s.Synchronize()))
	})
}

// A record that is overtaken by a Close does nothing to who has the native event then.
func TestHeldStrays(t *testing.T) {
	skipShort(t)
	onHeld(t, func(t *testing.T, b *held) {
		a, c := b.stream(t), b.stream(t)
		in, out := b.host(t, 1), b.host(t, 1)
		var event atomic.Pointer[cuda.Event]
		event.Store(cuda.NewEvent(nil))
		storm(t, b, 4, func(r *rand.Rand, g, i int) error {
			if g > 0 {
				return except(event.Load().Record(a), nil, cuda.ErrClosed)
			}
			in.Slice()[0] = uint32(i)
			mine := cuda.NewEvent(nil)
			err := errors.Join(event.Swap(cuda.NewEvent(nil)).Close(), b.run(c, 100*time.Microsecond), cuda.Copy(c, out, in), mine.Record(c))
			runtime.Gosched()
			err = errors.Join(err, mine.Synchronize(), mine.Close())
			if v := out.Slice()[0]; err == nil && v != uint32(i) {
				err = errors.New("others have recorded it")
			}
			return err
		})
		require.NoError(t, event.Load().Close())
	})
}

// Goroutines share the stream that uses their memory: what one has not enqueued yet is
// nothing that another's wait covers.
func TestHeldJoins(t *testing.T) {
	skipShort(t)
	onHeld(t, func(t *testing.T, b *held) {
		const goroutines, size = 4, 16
		user := b.stream(t)
		type mine struct {
			home           *cuda.Stream
			e              *cuda.Event
			in, out, wrong *cuda.HostBuffer[uint32]
		}
		var own [goroutines]mine
		for g := range own {
			own[g] = mine{b.stream(t), cuda.NewEvent(nil), b.host(t, size), b.host(t, size), b.host(t, size)}
			set(own[g].wrong, 1<<31)
		}
		storm(t, b, goroutines, func(r *rand.Rand, g, i int) error {
			x := own[g]
			set(x.in, uint32(i))
			m, err := cuda.AllocAsync[uint32](x.home, size)
			if err != nil {
				return err
			}
			err = errors.Join(cuda.Copy(x.home, m, x.in), user.WaitStream(x.home))
			if r.IntN(4) == 0 {
				err = errors.Join(err, b.run(user, time.Duration(r.IntN(100))*time.Microsecond))
			}
			var used error
			var using sync.WaitGroup
			using.Go(func() { used = cuda.Copy(user, x.out, m) })
			switch r.IntN(3) { // while that is on its way
			case 0:
				err = errors.Join(err, x.home.WaitStream(user))
			case 1:
				err = errors.Join(err, x.e.Record(user), x.e.Wait(x.home))
			}
			using.Wait()
			err = errors.Join(err, used, m.Close())
			again, allocated := cuda.AllocAsync[uint32](x.home, size) // the same memory, if it is free
			if err = errors.Join(err, allocated); err != nil {
				return err
			}
			err = errors.Join(cuda.Copy(x.home, again, x.wrong), again.Close(), user.Synchronize(), x.home.Synchronize())
			for _, v := range x.out.Slice() {
				if v != uint32(i) {
					return errors.Join(err, fmt.Errorf("%#x instead of %d", v, i))
				}
			}
			return err
		})
		for g := range own {
			require.NoError(t, own[g].e.Close())
		}
	})
}

// Memory is used on other streams, some of which are closed at once, and closed with the
// uses in flight: no byte is ever wrong.
func TestHeldLifetimes(t *testing.T) {
	skipShort(t)
	onHeld(t, func(t *testing.T, b *held) {
		const goroutines, size, ring = 3, 64, 32
		type mine struct {
			home    *cuda.Stream
			users   [2]*cuda.Stream
			in, out *cuda.HostBuffer[uint32]
		}
		var own [goroutines]mine
		for g := range own {
			own[g] = mine{b.stream(t), [...]*cuda.Stream{b.stream(t), b.stream(t)}, b.host(t, size*ring), b.host(t, size*ring)}
		}
		one := func(r *rand.Rand, x *mine, i int) error {
			in, out := part(x.in, i, size), part(x.out, i, size)
			user, other := x.users[i%2], x.users[1-i%2]
			m, err := cuda.AllocAsync[uint32](x.home, size)
			if err != nil {
				return err
			}
			err = errors.Join(cuda.Copy(x.home, m, in), user.WaitStream(x.home))
			if r.IntN(4) == 0 {
				err = errors.Join(err, b.run(user, time.Duration(r.IntN(20))*time.Microsecond))
			}
			err = errors.Join(err, cuda.Copy(user, out, m))
			switch r.IntN(10) {
			case 0, 1, 2:
				err = errors.Join(err, x.home.WaitStream(user))
			case 3: // and used again by a late writer
				err = errors.Join(err, x.home.WaitStream(user), cuda.Fill(user, m, 0))
			case 4: // and by a third stream
				err = errors.Join(err, other.WaitStream(user), cuda.Fill(other, m, 0))
			case 5: // which is closed at once
				short, made := b.NewStream(nil)
				if err = errors.Join(err, made); err == nil {
					err = errors.Join(short.WaitStream(user), b.run(short, 10*time.Microsecond), cuda.Fill(short, m, 0), short.Close())
				}
			}
			return errors.Join(err, m.Close())
		}
		storm(t, b, goroutines, func(r *rand.Rand, g, round int) error {
			x := &own[g]
			for i := range ring {
				set(part(x.in, i, size), uint32(g<<24|round*ring+i))
			}
			for i := range ring {
				if err := one(r, x, i); err != nil {
					return err
				}
			}
			err := errors.Join(x.users[0].Synchronize(), x.users[1].Synchronize())
			for i, v := range x.out.Slice() {
				if want := x.in.Slice()[i]; v != want {
					return errors.Join(err, fmt.Errorf("%#x instead of %#x", v, want))
				}
			}
			return errors.Join(err, x.home.Synchronize())
		})
	})
}
