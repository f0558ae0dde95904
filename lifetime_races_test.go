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

// A capture begins when no call on its stream is under way, and ends when none is: so a use
// is in the graph, or before or after it, and never between.
func TestCallsExcludeTheEndsOfACapture(t *testing.T) {
	for name, inside := range map[string]bool{"begin": false, "end": true} {
		rule(t, "34 a use at the "+name+" of a capture", 1, func(t *testing.T, b *backend) {
			var copying amid
			b, _ = counted(t, b, func(api *driver.API) {
				bare := api.MemcpyAsync
				api.MemcpyAsync = func(dst, src driver.DevicePtr, n uint64, s driver.Stream) driver.Result {
					copying.run()
					r := bare(dst, src, n, s)
					copying.run()
					return r
				}
			})
			s, p := newStream(t, b.dev(), nil), newPipe(t, b.dev())
			p.set(7)
			require.NoError(t, cuda.Copy(s, p.buf, p.in))
			require.NoError(t, s.Synchronize())
			inDriver, leave, copied := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			hold := func() { close(inDriver); <-leave }
			use := func() { copied <- cuda.Copy(s, p.out, p.buf) }
			if !inside {
				copying.next(hold)
				go use()
				<-inDriver
			}
			begun, ended := make(chan struct{}), make(chan *cuda.Graph, 1)
			go func() {
				g, err := s.Capture(func() error {
					close(begun)
					if inside {
						copying.next(hold)
						go use()
						<-inDriver
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				ended <- g
			}()
			time.Sleep(soon)
			require.Empty(t, ended)
			if !inside {
				select {
				case <-begun:
					t.Error("the capture has begun while a call was in the driver")
				default:
				}
			}
			close(leave)
			g := <-ended
			require.NoError(t, <-copied)
			n, err := g.Nodes()
			require.NoError(t, err)
			require.Equal(t, map[bool]int{false: 0, true: 1}[inside], n)
			require.NoError(t, g.Close())
			require.NoError(t, s.Synchronize())
			p.require(t, map[bool]uint32{false: 7, true: 0}[inside])
		})
	}
}

// A closed stream counts as a user of memory for as long as calls on it are under way.
func TestClosedStreamsCountTheirLastUse(t *testing.T) {
	var copying amid
	gpu, d := simulatedDevice(t, func(api *driver.API) {
		bare := *api
		api.MemcpyAsync = func(dst, src driver.DevicePtr, n uint64, s driver.Stream) driver.Result {
			copying.run()
			return bare.MemcpyAsync(dst, src, n, s)
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

	var release func()
	copying.next(func() { // on its way to the driver
		require.NoError(t, user.Close())
		require.NoError(t, cuda.Copy(third, out3, buf), "which drops users that are closed and done")
		release = gpu.Hold(user)
	})
	require.NoError(t, cuda.Copy(user, out, buf))
	again := closeAndAskAgain(t, home, buf)
	release()
	require.NoError(t, d.Synchronize())
	all(t, 1, out.Slice())
	require.NoError(t, again.Close())
}
