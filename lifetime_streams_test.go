package cuda_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// Streams that are closed, or destroyed by their owners, before the memory that
// they used.
func TestLifetimeOfStreams(t *testing.T) {
	testgpu.Rule(t, "29 the using stream closed first", 1, func(t *testing.T, b *testgpu.Backend) {
		b, _ = testgpu.Counted(t, b, nil)
		d := b.Device()
		home, out := testgpu.NewStream(t, d, nil), testgpu.AllocHost[uint32](t, d, testgpu.FilledSize)
		user, err := d.NewStream(nil)
		require.NoError(t, err)
		buf := testgpu.Filled(t, home, 1)
		require.NoError(t, user.WaitStream(home))
		release := testgpu.Hold(t, user)
		require.NoError(t, cuda.Copy(user, out, buf))
		done := testgpu.NewEvent(t, nil)
		require.NoError(t, done.Record(user))
		require.NoError(t, user.Close())
		require.Equal(t, 2, b.Driver.Stats().Streams, "the memory still needs it")
		again := testgpu.CloseAndAllocate(t, home, buf)
		release()
		require.NoError(t, done.Synchronize())
		testgpu.RequireAll(t, 1, out.Slice())
		testgpu.RequireFilled(t, home, again, 2)
	})

	testgpu.Rule(t, "29 the home closed first", 1, func(t *testing.T, b *testgpu.Backend) {
		b, calls := testgpu.Counted(t, b, nil)
		d := b.Device()
		user, out := testgpu.NewStream(t, d, nil), testgpu.AllocHost[uint32](t, d, testgpu.FilledSize)
		home, err := d.NewStream(nil)
		require.NoError(t, err)
		buf := testgpu.Filled(t, home, 1)
		require.NoError(t, user.WaitStream(home))
		release := testgpu.Hold(t, user)
		require.NoError(t, home.Close())
		require.Equal(t, 2, b.Driver.Stats().Streams, "the memory still needs it")
		require.NoError(t, cuda.Copy(user, out, buf))
		made := calls.During(func() { require.NoError(t, buf.Close()) })
		require.Zero(t, made["StreamWaitEvent"])
		require.Zero(t, made["MemFreeAsync"])
		require.Zero(t, made["StreamDestroy"])
		release()
		require.NoError(t, user.Synchronize())
		testgpu.RequireAll(t, 1, out.Slice())
		testgpu.CollectUntil(t, func() bool { return b.Driver.Stats().Streams == 1 })
		require.Equal(t, 1, calls.Count("MemFreeAsync"))
		require.Equal(t, 1, calls.Count("StreamDestroy"))
	})

	testgpu.Rule(t, "29 memory that outlives a thousand streams", 1, func(t *testing.T, b *testgpu.Backend) {
		b, _ = testgpu.Counted(t, b, nil)
		d := b.Device()
		home, gate := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
		pool, host := testgpu.AllocAsync[uint32](t, home, 16), testgpu.AllocHost[uint32](t, d, 16)
		require.NoError(t, home.Synchronize())
		through := func(use func(s *cuda.Stream)) {
			for range 500 {
				s, err := d.NewStream(nil)
				require.NoError(t, err)
				use(s)
				require.NoError(t, s.Close())
				require.LessOrEqual(t, b.Driver.Stats().Streams, 4)
			}
		}
		through(func(s *cuda.Stream) { // their work is done
			require.NoError(t, cuda.Copy(s, pool, host))
			require.NoError(t, s.Synchronize())
		})
		release := testgpu.Hold(t, gate)
		through(func(s *cuda.Stream) { // or they were joined
			require.NoError(t, s.WaitStream(gate))
			require.NoError(t, cuda.Fill(s, pool, 1))
			require.NoError(t, home.WaitStream(s))
		})
		release()
		require.NoError(t, pool.Close())
		require.NoError(t, d.Synchronize())
		require.NoError(t, host.Close())
		require.Equal(t, 2, b.Driver.Stats().Streams)
	})

	testgpu.Rule(t, "29 a stream of others, destroyed before the memory is closed", 1, func(t *testing.T, b *testgpu.Backend) {
		b, calls := testgpu.Counted(t, b, nil)
		d := b.Device()
		home, out := testgpu.NewStream(t, d, nil), testgpu.AllocHost[uint32](t, d, testgpu.FilledSize)
		in, spare := testgpu.AllocHost[uint32](t, d, testgpu.FilledSize), testgpu.AllocHost[uint32](t, d, testgpu.FilledSize)
		api := d.Driver().API()
		var native driver.Stream
		require.Equal(t, driver.Success, testgpu.InContext(d, func() (r driver.Result) {
			native, r = api.StreamCreateWithPriority(driver.StreamNonBlocking, 0)
			return r
		}))
		external, err := d.ExternalStream(native)
		require.NoError(t, err)
		buf, second := testgpu.Filled(t, home, 1), testgpu.Filled(t, home, 1)
		require.NoError(t, external.WaitStream(home))
		release := testgpu.Hold(t, external)
		require.NoError(t, cuda.Copy(external, out, buf))
		require.NoError(t, cuda.Copy(external, second, in))
		done := testgpu.NewEvent(t, nil)
		require.NoError(t, done.Record(external))
		require.NoError(t, external.Close())
		require.Equal(t, driver.Success, api.StreamDestroy(native))

		user := testgpu.NewStream(t, d, nil)
		require.NoError(t, cuda.Copy(user, spare, in)) // looks at the marks, and asks for those of closed streams
		freed := calls.Count("MemFreeHost")
		testgpu.Returns(t, func() { require.NoError(t, in.Close()) })
		again := testgpu.CloseAndAllocate(t, home, buf)
		require.Equal(t, freed, calls.Count("MemFreeHost"), "a copy still reads the pinned memory")
		release()
		require.NoError(t, done.Synchronize())
		testgpu.RequireAll(t, 1, out.Slice())
		testgpu.RequireFilled(t, home, again, 2)
	})

	testgpu.Rule(t, "29 streams of others that go on", 1, func(t *testing.T, b *testgpu.Backend) {
		b, calls := testgpu.Counted(t, b, nil)
		d := b.Device()
		home, owned := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
		external, err := d.ExternalStream(owned.Handle())
		require.NoError(t, err)
		defer func() { require.NoError(t, external.Close()) }()
		buf := testgpu.AllocAsync[uint32](t, home, 16)
		require.NoError(t, external.WaitStream(home))
		require.NoError(t, cuda.Fill(external, buf, 1))
		require.NoError(t, home.WaitStream(external))
		made := calls.During(func() { require.NoError(t, buf.Close()) })
		require.Zero(t, made["StreamWaitEvent"], "joined")

		buf = testgpu.AllocAsync[uint32](t, home, 16)
		require.NoError(t, external.WaitStream(home))
		for range 10 {
			require.NoError(t, cuda.Fill(external, buf, 1))
		}
		made = calls.During(func() { require.NoError(t, buf.Close()) })
		require.Zero(t, made["StreamWaitEvent"])
		require.Zero(t, made["EventRecord"], "recorded behind each use")
		require.NoError(t, d.Synchronize())
	})
}
