package cuda_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
)

// amid runs a function once, inside a call of the driver.
type amid struct{ f atomic.Pointer[func()] }

func (a *amid) next(f func()) { a.f.Store(&f) }

func (a *amid) run() {
	if f := a.f.Swap(nil); f != nil {
		(*f)()
	}
}

// capturing captures s on a goroutine of its own. The capture has begun when
// capturing returns; it ends when f does.
func capturing(s *cuda.Stream, f func() error) (ended <-chan error) {
	begun, end := make(chan struct{}), make(chan error, 1)
	go func() {
		g, err := s.Capture(nil, func() error {
			close(begun)
			return f()
		})
		if err == nil {
			err = g.Close()
		}
		end <- err
	}()
	<-begun
	return end
}

// A call of one goroutine reaches the driver just before another's capture of the
// same stream begins or ends, or just behind.
func TestCallsThatStraddleACapture(t *testing.T) {
	rule(t, "29 a use before the capture, noted in it", 1, func(t *testing.T, b *backend) {
		var behind amid
		b, calls := counted(t, b, func(api *driver.API) {
			bare := api.MemcpyAsync
			api.MemcpyAsync = func(dst, src driver.DevicePtr, n uint64, s driver.Stream) driver.Result {
				r := bare(dst, src, n, s)
				behind.run()
				return r
			}
		})
		d := b.dev()
		home, user := newStream(t, d, nil), newStream(t, d, nil)
		out, buf := allocHost[uint32](t, d, lifeSize), filled(t, home, 1)
		require.NoError(t, user.WaitStream(home))
		release := hold(t, user)
		end := make(chan struct{})
		var ended <-chan error
		behind.next(func() { ended = capturing(user, func() error { <-end; return nil }) })
		require.NoError(t, cuda.Copy(user, out, buf))
		close(end)
		require.NoError(t, <-ended)
		var again *cuda.Buffer[uint32]
		made := calls.during(func() { again = closeAndAskAgain(t, home, buf) })
		require.Equal(t, 1, made["StreamWaitEvent"])
		release()
		require.NoError(t, user.Synchronize())
		all(t, 1, out.Slice())
		holds(t, home, again, 2)
	})

	rule(t, "29 a wait in the capture, noted behind it", 1, func(t *testing.T, b *backend) {
		var behind amid
		b, calls := counted(t, b, func(api *driver.API) {
			bare := api.StreamWaitEvent
			api.StreamWaitEvent = func(s driver.Stream, e driver.Event, flags uint32) driver.Result {
				r := bare(s, e, flags)
				behind.run()
				return r
			}
		})
		d := b.dev()
		home, user := newStream(t, d, nil), newStream(t, d, nil)
		out, buf := allocHost[uint32](t, d, lifeSize), filled(t, home, 1)
		require.NoError(t, user.WaitStream(home))
		release := hold(t, user)
		require.NoError(t, cuda.Copy(user, out, buf))
		waited, over, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		behind.next(func() { close(waited); <-over })
		ended := capturing(user, func() error {
			go func() { done <- home.WaitStream(user) }()
			<-waited
			return nil
		})
		time.Sleep(5 * time.Millisecond) // the end of the capture stands in line behind the wait
		close(over)
		<-ended // perhaps with an error: home did not join back
		require.NoError(t, <-done)
		var again *cuda.Buffer[uint32]
		made := calls.during(func() { again = closeAndAskAgain(t, home, buf) })
		require.Equal(t, 1, made["StreamWaitEvent"], "an edge of a graph is no join")
		release()
		require.NoError(t, user.Synchronize())
		all(t, 1, out.Slice())
		holds(t, home, again, 2)
	})

	for _, c := range []struct {
		name string
		ask  func(e *cuda.Event, before <-chan error) error
	}{
		{"a question", func(e *cuda.Event, before <-chan error) error {
			_, err := e.Query()
			<-before // while it asks it holds the event
			return err
		}},
		{"a wait from before", func(_ *cuda.Event, before <-chan error) error { return <-before }},
	} {
		rule(t, "23 a record that a capture overtakes, then "+c.name, 1, func(t *testing.T, b *backend) {
			var ahead amid
			b, _ = counted(t, b, func(api *driver.API) {
				record := api.EventRecord
				api.EventRecord = func(e driver.Event, s driver.Stream) driver.Result {
					ahead.run()
					r := record(e, s)
					time.Sleep(5 * time.Millisecond) // the library does not know yet that it was in a capture; waits from before ask meanwhile
					return r
				}
			})
			d := b.dev()
			s, other, e := newStream(t, d, nil), newStream(t, d, nil), newEvent(t, nil)
			release := hold(t, other)
			require.NoError(t, e.Record(other))
			e.Handle() // others may record it, so waits for it move along
			before, recorded := e.Done(), make(chan struct{})
			var asked error
			var ended <-chan error
			ahead.next(func() {
				ended = capturing(s, func() error {
					<-recorded
					asked = c.ask(e, before)
					return nil
				})
			})
			require.NoError(t, e.Record(s))
			close(recorded)
			returns(t, func() { require.NoError(t, <-ended, "the capture lives") })
			require.ErrorIs(t, asked, cuda.ErrCaptured)
			release()
		})
	}
}

// A mark that is taken off because its closed stream was idle stays if a call that still
// holds the stream has used the memory since.
func TestMarksOfClosedStreamsCountTheirLastUse(t *testing.T) {
	var copying, queried amid
	gpu, d := simulatedDevice(t, func(api *driver.API) {
		bare := *api
		api.MemcpyAsync = func(dst, src driver.DevicePtr, n uint64, s driver.Stream) driver.Result {
			copying.run()
			return bare.MemcpyAsync(dst, src, n, s)
		}
		api.StreamQuery = func(s driver.Stream) driver.Result {
			r := bare.StreamQuery(s)
			if r == driver.Success {
				queried.run()
			}
			return r
		}
	})
	home, third := newStream(t, d, nil), newStream(t, d, nil)
	user, err := d.NewStream(nil)
	require.NoError(t, err)
	buf := filled(t, home, 1)
	out, out3 := allocHost[uint32](t, d, lifeSize), allocHost[uint32](t, d, lifeSize)
	require.NoError(t, user.WaitStream(home))
	require.NoError(t, third.WaitStream(home))
	require.NoError(t, cuda.Copy(user, out, buf))
	require.NoError(t, user.Synchronize())
	for i := range out.Slice() {
		out.Slice()[i] = 7
	}

	goOn, first, second := make(chan struct{}), make(chan error, 1), make(chan error, 1)
	var release func()
	inQuery := func() { // the second copy has seen that user is idle
		release = gpu.Hold(user)
		close(goOn)
		require.NoError(t, <-first)
	}
	inCopy := func() {
		require.NoError(t, user.Close())
		queried.next(inQuery)
		go func() { second <- cuda.Copy(third, out3, buf) }()
		select {
		case <-goOn:
		case <-time.After(time.Second):
			t.Error("not asked")
		}
	}
	copying.next(inCopy)
	first <- cuda.Copy(user, out, buf)
	require.NoError(t, <-second)

	again := closeAndAskAgain(t, home, buf)
	done, err := home.Query()
	require.NoError(t, err)
	require.False(t, done, "it did not wait for the stream that has yet to read")
	release()
	require.NoError(t, home.Synchronize())
	all(t, 1, out.Slice())
	require.NoError(t, again.Close())
}
