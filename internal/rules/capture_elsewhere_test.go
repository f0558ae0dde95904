package rules_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// The same while the stream still uses the memory.
func TestClosingMemoryInUseOnAStreamThatOthersCapture(t *testing.T) {
	testgpu.Rule(t, "29 memory that a stream uses while others capture it", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device()
		home, user := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
		buf, out := testgpu.Filled(t, home, 1), testgpu.AllocHost[uint32](t, d, testgpu.FilledSize)
		require.NoError(t, user.WaitStream(home))
		release := testgpu.Hold(t, user)
		require.NoError(t, cuda.Copy(user, out, buf))
		var again *cuda.Buffer[uint32]
		require.NoError(t, testgpu.CaptureElsewhere(user, driver.CaptureModeRelaxed, func() error {
			again = testgpu.CloseAndAllocate(t, home, buf)
			time.Sleep(testgpu.Soon) // freeing is tried again
			return nil
		}))
		release()
		require.NoError(t, user.Synchronize())
		testgpu.RequireAll(t, 1, out.Slice())
		testgpu.RequireFilled(t, home, again, 2)
	})
}

// A driver without cuCtxRecordEvent: waiting for a device would end a capture of others.
func TestOldDriverBesideACaptureOfOthers(t *testing.T) {
	_, b := testgpu.Simulated(t, cudatest.Config{DriverVersion: 12020}, nil)
	s := testgpu.NewStream(t, b.Device(), nil)
	pool, err := b.Device().MemoryPool()
	require.NoError(t, err)
	require.NoError(t, testgpu.CaptureElsewhere(s, driver.CaptureModeRelaxed, func() error {
		require.ErrorIs(t, b.Device().Synchronize(), cuda.ErrCapturing)
		return nil
	}))
	require.NoError(t, testgpu.CaptureElsewhere(s, driver.CaptureModeRelaxed, func() error { return pool.Trim(0) }))
}

// Memory that was used on a stream before another library began to capture it can be closed:
// nothing is put into the graph, and the memory is given back afterwards.
func TestClosingMemoryOfAStreamThatOthersCapture(t *testing.T) {
	for name, wrap := range map[string]bool{"made here": false, "adopted": true} {
		for mode := range testgpu.CaptureModes {
			testgpu.Rule(t, "29 memory used on a stream "+name+" that others capture, "+mode, 1, func(t *testing.T, b *testgpu.Backend) {
				d := b.Device()
				home, theirs := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
				user := theirs
				if wrap {
					var err error
					user, err = d.ExternalStream(theirs.Handle())
					require.NoError(t, err)
				}
				buf, within := testgpu.AllocAsync[uint32](t, home, 16), testgpu.AllocAsync[uint32](t, home, 16)
				own := testgpu.AllocAsync[uint32](t, theirs, 16)
				plain, pinned := testgpu.Alloc[uint32](t, d, 16), testgpu.AllocHost[uint32](t, d, 16)
				pool, err := d.MemoryPool()
				require.NoError(t, err)
				require.NoError(t, user.WaitStream(home))
				theirs.Handle()
				require.NoError(t, cuda.Copy(user, buf, pinned))
				require.NoError(t, cuda.Fill(user, plain, 1))
				nodes, err := testgpu.NodesElsewhere(theirs, testgpu.CaptureModes[mode], func() error {
					require.NoError(t, cuda.Fill(user, within, 1))
					for _, c := range []interface{ Close() error }{buf, within, own, plain, pinned} {
						require.NoError(t, c.Close())
					}
					require.NoError(t, pool.Trim(0))
					return nil
				})
				require.NoError(t, err)
				require.EqualValues(t, 1, nodes, "the fill alone")
				testgpu.WaitUntil(t, func() bool { return b.Driver.Stats().Buffers == 0 })
				require.NoError(t, home.Synchronize())
				require.NoError(t, theirs.Synchronize())
				if wrap {
					require.NoError(t, user.Close())
				}
			})
		}
	}
}

func TestCapturesOfOthers(t *testing.T) {
	for _, c := range []struct {
		name string
		wait func(t *testing.T, s, other *cuda.Stream)
	}{
		{"WaitStream", func(t *testing.T, s, other *cuda.Stream) { require.NoError(t, s.WaitStream(other)) }},
		{"an event", func(t *testing.T, s, other *cuda.Stream) {
			e := testgpu.NewEvent(t, nil)
			require.NoError(t, e.Record(other))
			require.NoError(t, e.Wait(s))
		}},
	} {
		testgpu.Rule(t, "29 "+c.name+" in a capture of others is no join", 1, func(t *testing.T, b *testgpu.Backend) {
			b, calls := testgpu.Counted(t, b, nil)
			d := b.Device()
			home, user := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
			out, buf := testgpu.AllocHost[uint32](t, d, testgpu.FilledSize), testgpu.Filled(t, home, 1)
			require.NoError(t, user.WaitStream(home))
			release := testgpu.Hold(t, user)
			require.NoError(t, cuda.Copy(user, out, buf))
			require.NoError(t, testgpu.CaptureElsewhere(user, driver.CaptureModeRelaxed, func() error {
				c.wait(t, home, user)
				c.wait(t, user, home)
				return nil
			}))
			var again *cuda.Buffer[uint32]
			made := calls.During(func() { again = testgpu.CloseAndAllocate(t, home, buf) })
			require.Zero(t, made["MemFreeAsync"], "it is used")
			release()
			require.NoError(t, user.Synchronize())
			testgpu.RequireAll(t, 1, out.Slice())
			testgpu.RequireFilled(t, home, again, 2)
		})
	}

	testgpu.Rule(t, "23 what a capture of others would make wrong", 1, func(t *testing.T, b *testgpu.Backend) {
		s, buf := testgpu.NewStream(t, b.Device(), nil), testgpu.Alloc[uint32](t, b.Device(), 1)
		require.NoError(t, testgpu.CaptureElsewhere(s, driver.CaptureModeRelaxed, func() error {
			require.ErrorIs(t, cuda.CopyFromSlice(t.Context(), s, buf, []uint32{1}), cuda.ErrCapturing)
			require.ErrorIs(t, cuda.CopyToSlice(t.Context(), s, make([]uint32, 1), buf), cuda.ErrCapturing)
			_, err := cuda.AllocAsync[uint32](s, 1)
			require.ErrorIs(t, err, cuda.ErrCapturing)
			return nil
		}))
		require.NoError(t, cuda.CopyFromSlice(t.Context(), s, buf, []uint32{1}))
		testgpu.RequireFilled(t, s, buf, 1)
	})
}
