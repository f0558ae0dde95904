package native_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// Closing memory that another stream uses delays no stream: work at home and on the other
// stream goes on side by side, and what the other stream is given later delays nobody.
func TestFreesDelayNobody(t *testing.T) {
	const rounds, step = 20, time.Millisecond
	for name, c := range map[string]struct {
		later time.Duration // work that the using stream is given after the first round
		users int
		want  time.Duration
	}{
		"computed here, copied out there": {0, 1, (rounds + 2) * step},
		"used by three streams":           {0, 3, (rounds + 2) * step},
		"an hour of other work":           {time.Hour, 1, rounds*step + time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gpu := cudatest.New(cudatest.Config{})
				drv, err := cuda.OpenDriver(gpu.API())
				require.NoError(t, err)
				d, err := drv.OpenDevice(0)
				require.NoError(t, err)
				home := testgpu.NewStream(t, d, nil)
				var users []*cuda.Stream
				for range c.users {
					users = append(users, testgpu.NewStream(t, d, nil))
				}
				began := time.Now()
				for i := range rounds {
					b, err := cuda.AllocAsync[uint32](home, 1024)
					require.NoError(t, err)
					gpu.Run(home, step)
					for _, u := range users {
						require.NoError(t, u.WaitStream(home))
						gpu.Run(u, step)
						require.NoError(t, b.RecordStream(u))
					}
					require.NoError(t, b.Close())
					if c.later > 0 && i == 0 {
						gpu.Run(users[0], c.later)
					}
				}
				require.NoError(t, home.Synchronize())
				require.LessOrEqual(t, time.Since(began), c.want)
				for _, u := range users {
					require.NoError(t, u.Synchronize())
				}
				if c.later == 0 {
					require.LessOrEqual(t, time.Since(began), c.want)
				}
				for drv.Stats().Buffers > 0 { // freed when the uses are done
					time.Sleep(time.Millisecond)
				}
			})
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

// A stream whose queue is full blocks the driver's call that frees memory in its order. That
// delays no frees of other streams.
func TestFreesOfOneHomeDoNotDelayAnothers(t *testing.T) {
	for blocked := range 2 { // whichever is tried first
		t.Run(fmt.Sprint(blocked), func(t *testing.T) {
			var full atomic.Uint64
			var freed atomic.Int32
			room := make(chan struct{})
			_, b := testgpu.Simulated(t, cudatest.Config{}, func(api *driver.API) {
				bare := api.MemFreeAsync
				api.MemFreeAsync = func(p driver.DevicePtr, s driver.Stream) driver.Result {
					if uint64(s) == full.Load() {
						<-room
					}
					defer freed.Add(1)
					return bare(p, s)
				}
			})
			user := testgpu.NewStream(t, b.Device(), nil)
			release := testgpu.Hold(t, user)
			testgpu.ReleaseAtEnd(t, func() { close(room) })
			for i := range 2 {
				home := testgpu.NewStream(t, b.Device(), nil)
				m, err := cuda.AllocAsync[uint32](home, 4)
				require.NoError(t, err)
				require.NoError(t, user.WaitStream(home))
				require.NoError(t, cuda.Fill(user, m, 1))
				require.NoError(t, m.Close())
				if i == blocked {
					full.Store(uint64(home.Handle()))
				}
			}
			release()
			testgpu.WaitUntil(t, func() bool { return freed.Load() == 1 })
		})
	}
}

// However many frees wait for room in the queue of their home, one goroutine is in the driver.
func TestOneFreeOfAHomeAtATime(t *testing.T) {
	frees := testgpu.NewGate()
	_, b := testgpu.Simulated(t, cudatest.Config{}, func(api *driver.API) {
		bare := api.MemFreeAsync
		api.MemFreeAsync = func(p driver.DevicePtr, s driver.Stream) driver.Result { frees.Pass(); return bare(p, s) }
	})
	home := testgpu.NewStream(t, b.Device(), nil)
	var bufs [5]*cuda.Buffer[uint8]
	for i := range bufs {
		var err error
		bufs[i], err = cuda.AllocAsync[uint8](home, 16)
		require.NoError(t, err)
	}
	open := frees.Close()
	testgpu.ReleaseAtEnd(t, open)
	for i, buf := range bufs {
		user := testgpu.NewStream(t, b.Device(), nil)
		require.NoError(t, user.WaitStream(home))
		release := testgpu.Hold(t, user)
		require.NoError(t, cuda.Fill(user, buf, 1))
		require.NoError(t, buf.Close())
		release()
		require.NoError(t, user.Synchronize())
		if i == 0 {
			<-frees.Entered
		}
	}
	testgpu.NotReady(t, frees.Entered)
}
