package native_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
)

func TestBubbles(t *testing.T) {
	for name, f := range map[string]func(t *testing.T, b *heldDevice){
		"memory closed in a capture": func(t *testing.T, b *heldDevice) {
			home, user := b.stream(t), b.stream(t)
			m := b.used(t, home, user, 64)
			g, err := user.Capture(func() error {
				require.NoError(t, m.Close())
				time.Sleep(time.Second)
				require.Equal(t, 1, b.Driver().Stats().Buffers)
				return nil
			})
			require.NoError(t, err)
			require.NoError(t, g.Close())
			time.Sleep(2 * time.Millisecond)
			require.Zero(t, b.Driver().Stats().Buffers)
		},
		"a home that is captured": func(t *testing.T, b *heldDevice) {
			home, user := b.stream(t), b.stream(t)
			m := b.used(t, home, user, 64)
			g, err := home.Capture(func() error {
				require.NoError(t, m.Close())
				time.Sleep(time.Second)
				return nil
			})
			require.NoError(t, err)
			require.Zero(t, b.Driver().Stats().Buffers)
			require.NoError(t, g.Close())
		},
		"a closed home": func(t *testing.T, b *heldDevice) {
			home, err := b.NewStream(nil)
			require.NoError(t, err)
			user, err := b.NewStream(nil)
			require.NoError(t, err)
			m := b.used(t, home, user, 64)
			b.gpu.Run(user, time.Hour)
			require.NoError(t, cuda.Fill(user, m, 1))
			b.gpu.Run(user, time.Hour)
			require.NoError(t, m.Close())
			require.NoError(t, home.Close())
			require.NoError(t, user.Close())
			require.Equal(t, 2, b.Driver().Stats().Streams)
			time.Sleep(2*time.Hour + 2*time.Millisecond)
			require.Equal(t, cuda.Stats{}, b.Driver().Stats())
		},
		"the device is lost": func(t *testing.T, b *heldDevice) {
			home, err := b.NewStream(nil)
			require.NoError(t, err)
			user, err := b.NewStream(nil)
			require.NoError(t, err)
			var freed, called atomic.Int32
			h, err := cuda.AllocHost[byte](b.Device, 64, nil)
			require.NoError(t, err)
			h.AfterFree(func() { freed.Add(1) })
			m := b.used(t, home, user, 64)
			b.gpu.Run(user, time.Minute)
			require.NoError(t, cuda.Copy(user, m, h))
			e := cuda.NewEvent(nil)
			require.NoError(t, e.Record(user))
			require.NoError(t, user.LaunchHostFunc(func(err error) { called.Add(1) }))
			g, err := home.Capture(func() error { return home.LaunchHostFunc(func(error) { called.Add(1) }) })
			require.NoError(t, err)
			x, err := g.Instantiate()
			require.NoError(t, err)
			require.NoError(t, x.Launch(user))
			require.NoError(t, x.Launch(user))
			require.NoError(t, m.Close())
			require.NoError(t, h.Close())
			b.gpu.Fault(user, driver.ErrorIllegalAddress)
			b.gpu.Run(user, time.Minute)
			late := cuda.NewEvent(nil)
			require.NoError(t, late.Record(user))
			done := late.Done()
			time.Sleep(30 * time.Second)
			b.gpu.Fault(home, driver.ErrorIllegalAddress)
			require.ErrorIs(t, <-done, cuda.ErrDeviceLost)
			require.ErrorIs(t, <-e.Done(), cuda.ErrDeviceLost)
			time.Sleep(time.Second)
			require.EqualValues(t, 1, freed.Load())
			require.EqualValues(t, 3, called.Load())
			x.Close()
			g.Close()
			require.NoError(t, e.Close())
			require.NoError(t, late.Close())
			time.Sleep(time.Second)
			home.Close()
			user.Close()
			require.Equal(t, cuda.Stats{}, b.Driver().Stats())
		},
		"a capture that exits": func(t *testing.T, b *heldDevice) {
			s, o := b.stream(t), b.stream(t)
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				s.Capture(func() error {
					require.NoError(t, o.WaitStream(s))
					go func() { _ = s.Synchronize(); _, _ = o.Query() }()
					time.Sleep(time.Second)
					runtime.Goexit()
					return nil
				})
			}()
			<-gone
			require.NoError(t, s.Synchronize())
			require.NoError(t, o.Synchronize())
			require.Zero(t, b.Driver().Stats().Graphs)
		},
		"out of memory, held": func(t *testing.T, b *heldDevice) {
			home, user := b.stream(t), b.stream(t)
			m := b.used(t, home, user, most)
			release := b.gpu.Hold(user)
			require.NoError(t, cuda.Fill(user, m, 1))
			require.NoError(t, m.Close())
			began := time.Now()
			_, err := cuda.AllocAsync[byte](home, most)
			require.ErrorIs(t, err, driver.ErrorOutOfMemory)
			require.LessOrEqual(t, time.Since(began), time.Second+2*time.Millisecond)
			_, err = cuda.Alloc[byte](b.Device, most)
			require.ErrorIs(t, err, driver.ErrorOutOfMemory)
			release()
			n, err := cuda.AllocAsync[byte](home, most)
			require.NoError(t, err)
			require.NoError(t, n.Close())
		},
		"registered memory": func(t *testing.T, b *heldDevice) {
			s := b.stream(t)
			mem := make([]byte, 4096)
			h, err := cuda.RegisterHost(b.Device, mem)
			require.NoError(t, err)
			var freed atomic.Int32
			h.AfterFree(func() { freed.Add(1) })
			b.gpu.Run(s, time.Hour)
			require.NoError(t, cuda.Copy(s, h, h))
			began := time.Now()
			require.NoError(t, h.Close())
			require.GreaterOrEqual(t, time.Since(began), time.Hour)
			require.EqualValues(t, 1, freed.Load())
			h.AfterFree(func() { freed.Add(1) })
			require.EqualValues(t, 2, freed.Load())
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newHeldDevice(t, tight)
				f(t, b)
			})
		})
	}
}
