package native_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// Waits in a capture that another library has begun say nothing about the past, also those of
// streams that joined it and whose handles nobody has taken.
func TestJoinsInForeignCaptures(t *testing.T) {
	b := newHeldDevice(t, cudatest.Config{})
	home, user, x := b.stream(t), b.stream(t), b.stream(t)
	release := testgpu.Hold(t, user)
	m := b.used(t, home, user, 64)
	require.NoError(t, testgpu.CaptureElsewhere(x, driver.CaptureModeRelaxed, func() error {
		return errors.Join(user.WaitStream(x), home.WaitStream(user), x.WaitStream(home))
	}))
	at := m.Pointer()
	require.NoError(t, m.Close())
	n, err := cuda.AllocAsync[byte](home, 64)
	require.NoError(t, err)
	require.NotEqual(t, at, n.Pointer(), "user is not done with it")
	require.NoError(t, n.Close())
	release()
	testgpu.WaitUntil(t, func() bool { return b.Driver().Stats().Buffers == 0 })
}

// A stream that has joined a capture of another library is treated as one whose handle that
// library has: what the capture would not survive is refused, and nothing is freed in it.
func TestStreamsThatJoinForeignCaptures(t *testing.T) {
	for name, call := range map[string]func(s *cuda.Stream, m *cuda.Buffer[byte]) error{
		"synchronize": func(s *cuda.Stream, m *cuda.Buffer[byte]) error { return s.Synchronize() },
		"done":        func(s *cuda.Stream, m *cuda.Buffer[byte]) error { return <-s.Done() },
		"allocate": func(s *cuda.Stream, m *cuda.Buffer[byte]) error {
			_, err := cuda.AllocAsync[byte](s, 4)
			return err
		},
		"host function": func(s *cuda.Stream, m *cuda.Buffer[byte]) error { return s.LaunchHostFunc(func(error) {}) },
		"slice": func(s *cuda.Stream, m *cuda.Buffer[byte]) error {
			return cuda.CopyFromSlice(context.Background(), s, m, make([]byte, 64))
		},
		"free": nil,
	} {
		t.Run(name, func(t *testing.T) {
			b := newHeldDevice(t, cudatest.Config{})
			s, x := b.stream(t), b.stream(t)
			m, err := cuda.AllocAsync[byte](s, 64)
			require.NoError(t, err)
			err = testgpu.CaptureElsewhere(x, driver.CaptureModeRelaxed, func() error {
				if err := s.WaitStream(x); err != nil {
					return err
				}
				if call == nil {
					require.NoError(t, m.Close())
				} else if err := call(s, m); !errors.Is(err, cuda.ErrCapturing) {
					t.Errorf("answer: %v", err)
				}
				return x.WaitStream(s)
			})
			if err != nil {
				t.Errorf("capture: %v", err)
			}
			require.NoError(t, m.Close())
			testgpu.WaitUntil(t, func() bool { return b.Driver().Stats().Buffers == 0 })
			for _, p := range b.gpu.Problems() {
				if call == nil && !strings.HasPrefix(p, "leaked: stream") {
					t.Error(p)
				}
			}
		})
	}
}

// Memory is not freed while a stream that was made elsewhere uses it, also if there was no
// event for its last use.
func TestExternalUseWithoutAnEvent(t *testing.T) {
	for name, fail := range map[string]func(api *driver.API, refuse *atomic.Bool){
		"none can be made": func(api *driver.API, refuse *atomic.Bool) {
			bare := api.EventCreate
			api.EventCreate = func(flags uint32) (driver.Event, driver.Result) {
				if refuse.Load() {
					return 0, driver.ErrorOutOfMemory
				}
				return bare(flags)
			}
		},
		"it is not recorded": func(api *driver.API, refuse *atomic.Bool) {
			bare := api.EventRecord
			api.EventRecord = func(e driver.Event, s driver.Stream) driver.Result {
				if refuse.Load() {
					return driver.ErrorOutOfMemory
				}
				return bare(e, s)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var refuse atomic.Bool
			gpu := cudatest.New(cudatest.Config{})
			api := *gpu.API()
			fail(&api, &refuse)
			drv, err := cuda.OpenDriver(&api)
			require.NoError(t, err)
			var reported atomic.Int32
			drv.OnCleanupError(func(err error) { reported.Add(1) })
			d, err := drv.OpenDevice(0)
			require.NoError(t, err)
			home, theirs := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
			user, err := d.ExternalStream(theirs.Handle())
			require.NoError(t, err)
			m, err := cuda.AllocAsync[byte](home, 64)
			require.NoError(t, err)
			require.NoError(t, user.WaitStream(home))
			require.NoError(t, cuda.Fill(user, m, 1))
			require.NoError(t, user.Synchronize())
			var events []*cuda.Event // take what the pool has
			for range 8 {
				events = append(events, testgpu.NewRecordedEvent(t, home, nil))
			}
			release := gpu.Hold(user)
			refuse.Store(true)
			require.NoError(t, cuda.Fill(user, m, 2))
			refuse.Store(false)
			at := m.Pointer()
			require.NoError(t, m.Close())
			n, err := cuda.AllocAsync[byte](home, 64)
			require.NoError(t, err)
			require.NotEqual(t, at, n.Pointer(), "user is not done with it; reported %d", reported.Load())
			release()
			require.NoError(t, n.Close())
			for _, e := range events {
				require.NoError(t, e.Close())
			}
			require.NoError(t, user.Close())
			testgpu.WaitUntil(t, func() bool { return drv.Stats().Buffers == 0 })
		})
	}
}

// A capture of a stream that another library has begun does not get what it could not keep
// alive, and no question about the stream ends it.
func TestRefusedInForeignCaptures(t *testing.T) {
	for name, call := range map[string]func(s *cuda.Stream, x *cuda.GraphExec) error{
		"Stream.Synchronize": func(s *cuda.Stream, _ *cuda.GraphExec) error { return s.Synchronize() },
		"Stream.Query":       func(s *cuda.Stream, _ *cuda.GraphExec) error { _, err := s.Query(); return err },
		"GraphExec.Launch":   func(s *cuda.Stream, x *cuda.GraphExec) error { return x.Launch(s) },
		"GraphExec.Upload":   func(s *cuda.Stream, x *cuda.GraphExec) error { return x.Upload(s) },
		"AllocAsync":         func(s *cuda.Stream, _ *cuda.GraphExec) error { _, err := cuda.AllocAsync[byte](s, 1); return err },
	} {
		t.Run(name, func(t *testing.T) {
			b := newHeldDevice(t, cudatest.Config{})
			s := b.stream(t)
			m, err := cuda.Alloc[byte](b.Device, 64)
			require.NoError(t, err)
			g, err := s.Capture(func() error { return cuda.Fill(s, m, 1) })
			require.NoError(t, err)
			x, err := g.Instantiate()
			require.NoError(t, err)
			s.Handle()
			require.NoError(t, testgpu.CaptureElsewhere(s, driver.CaptureModeRelaxed, func() error {
				require.ErrorIs(t, call(s, x), cuda.ErrCapturing)
				return nil
			}))
			require.NoError(t, errors.Join(x.Close(), g.Close(), m.Close()))
		})
	}
}
