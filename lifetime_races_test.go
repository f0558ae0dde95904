package cuda_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// A capture begins when no call on its stream is under way, and ends when none is: so a use
// is in the graph, or before or after it, and never between.
func TestCallsExcludeTheEndsOfACapture(t *testing.T) {
	for name, inside := range map[string]bool{"begin": false, "end": true} {
		testgpu.Rule(t, "34 a use at the "+name+" of a capture", 1, func(t *testing.T, b *testgpu.Backend) {
			var copying testgpu.Hook
			b, _ = testgpu.Counted(t, b, func(api *driver.API) {
				bare := api.MemcpyAsync
				api.MemcpyAsync = func(dst, src driver.DevicePtr, n uint64, s driver.Stream) driver.Result {
					copying.Run()
					r := bare(dst, src, n, s)
					copying.Run()
					return r
				}
			})
			s, p := testgpu.NewStream(t, b.Device(), nil), testgpu.NewPipe(t, b.Device())
			p.Set(7)
			require.NoError(t, cuda.Copy(s, p.Buf, p.In))
			require.NoError(t, s.Synchronize())
			inDriver, leave, copied := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			hold := func() { close(inDriver); <-leave }
			use := func() { copied <- cuda.Copy(s, p.Out, p.Buf) }
			if !inside {
				copying.Next(hold)
				go use()
				<-inDriver
			}
			begun, ended := make(chan struct{}), make(chan *cuda.Graph, 1)
			go func() {
				g, err := s.Capture(func() error {
					close(begun)
					if inside {
						copying.Next(hold)
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
			time.Sleep(testgpu.Soon)
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
			p.Require(t, map[bool]uint32{false: 7, true: 0}[inside])
		})
	}
}

// A closed stream counts as a user of memory for as long as calls on it are under way.
func TestClosedStreamsCountTheirLastUse(t *testing.T) {
	var copying testgpu.Hook
	gpu, d := testgpu.SimulatedDevice(t, func(api *driver.API) {
		bare := *api
		api.MemcpyAsync = func(dst, src driver.DevicePtr, n uint64, s driver.Stream) driver.Result {
			copying.Run()
			return bare.MemcpyAsync(dst, src, n, s)
		}
	})
	home, third := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
	user, err := d.NewStream(nil)
	require.NoError(t, err)
	buf := testgpu.Filled(t, home, 1)
	out, out3 := testgpu.AllocHost[uint32](t, d, testgpu.FilledSize), testgpu.AllocHost[uint32](t, d, testgpu.FilledSize)
	require.NoError(t, user.WaitStream(home))
	require.NoError(t, third.WaitStream(home))
	require.NoError(t, cuda.Copy(user, out, buf))
	require.NoError(t, user.Synchronize())
	for i := range out.Slice() {
		out.Slice()[i] = 7
	}

	var release func()
	copying.Next(func() { // on its way to the driver
		require.NoError(t, user.Close())
		require.NoError(t, cuda.Copy(third, out3, buf), "which drops users that are closed and done")
		release = gpu.Hold(user)
	})
	require.NoError(t, cuda.Copy(user, out, buf))
	again := testgpu.CloseAndAllocate(t, home, buf)
	release()
	require.NoError(t, d.Synchronize())
	testgpu.RequireAll(t, 1, out.Slice())
	require.NoError(t, again.Close())
}
