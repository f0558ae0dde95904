package cuda_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
)

// Streams that are closed, or destroyed by their owners, before the memory that
// they used.
func TestLifetimeOfStreams(t *testing.T) {
	rule(t, "29 the using stream closed first", 1, func(t *testing.T, b *backend) {
		b, _ = counted(t, b, nil)
		d := b.dev()
		home, out := newStream(t, d, nil), allocHost[uint32](t, d, lifeSize)
		user, err := d.NewStream(nil)
		require.NoError(t, err)
		buf := filled(t, home, 1)
		require.NoError(t, user.WaitStream(home))
		release := hold(t, user)
		require.NoError(t, cuda.Copy(user, out, buf))
		done := newEvent(t, nil)
		require.NoError(t, done.Record(user))
		require.NoError(t, user.Close())
		require.Equal(t, 2, b.drv.Stats().Streams, "the memory still needs it")
		again := closeAndAskAgain(t, home, buf)
		release()
		require.NoError(t, done.Synchronize())
		all(t, 1, out.Slice())
		holds(t, home, again, 2)
	})

	rule(t, "29 the home closed first", 1, func(t *testing.T, b *backend) {
		b, calls := counted(t, b, nil)
		d := b.dev()
		user, out := newStream(t, d, nil), allocHost[uint32](t, d, lifeSize)
		home, err := d.NewStream(nil)
		require.NoError(t, err)
		buf := filled(t, home, 1)
		require.NoError(t, user.WaitStream(home))
		release := hold(t, user)
		require.NoError(t, home.Close())
		require.Equal(t, 2, b.drv.Stats().Streams, "the memory still needs it")
		require.NoError(t, cuda.Copy(user, out, buf))
		made := calls.during(func() { require.NoError(t, buf.Close()) })
		require.Zero(t, made["StreamWaitEvent"])
		require.Zero(t, made["MemFreeAsync"])
		require.Zero(t, made["StreamDestroy"])
		release()
		require.NoError(t, user.Synchronize())
		all(t, 1, out.Slice())
		eventually(t, func() bool { return b.drv.Stats().Streams == 1 })
		require.Equal(t, 1, calls.count("MemFreeAsync"))
		require.Equal(t, 1, calls.count("StreamDestroy"))
	})

	rule(t, "29 memory that outlives a thousand streams", 1, func(t *testing.T, b *backend) {
		b, _ = counted(t, b, nil)
		d := b.dev()
		home, gate := newStream(t, d, nil), newStream(t, d, nil)
		pool, host := allocAsync[uint32](t, home, 16), allocHost[uint32](t, d, 16)
		require.NoError(t, home.Synchronize())
		through := func(use func(s *cuda.Stream)) {
			for range 500 {
				s, err := d.NewStream(nil)
				require.NoError(t, err)
				use(s)
				require.NoError(t, s.Close())
				require.LessOrEqual(t, b.drv.Stats().Streams, 4)
			}
		}
		through(func(s *cuda.Stream) { // their work is done
			require.NoError(t, cuda.Copy(s, pool, host))
			require.NoError(t, s.Synchronize())
		})
		release := hold(t, gate)
		through(func(s *cuda.Stream) { // or they were joined
			require.NoError(t, s.WaitStream(gate))
			require.NoError(t, cuda.Fill(s, pool, 1))
			require.NoError(t, home.WaitStream(s))
		})
		release()
		require.NoError(t, pool.Close())
		require.NoError(t, d.Synchronize())
		require.NoError(t, host.Close())
		require.Equal(t, 2, b.drv.Stats().Streams)
	})

	rule(t, "29 a stream of others, destroyed before the memory is closed", 1, func(t *testing.T, b *backend) {
		b, calls := counted(t, b, nil)
		d := b.dev()
		home, out := newStream(t, d, nil), allocHost[uint32](t, d, lifeSize)
		in, spare := allocHost[uint32](t, d, lifeSize), allocHost[uint32](t, d, lifeSize)
		api := d.Driver().API()
		var native driver.Stream
		require.Equal(t, driver.Success, inContext(d, func() (r driver.Result) {
			native, r = api.StreamCreateWithPriority(driver.StreamNonBlocking, 0)
			return r
		}))
		external, err := d.ExternalStream(native)
		require.NoError(t, err)
		buf, second := filled(t, home, 1), filled(t, home, 1)
		require.NoError(t, external.WaitStream(home))
		release := hold(t, external)
		require.NoError(t, cuda.Copy(external, out, buf))
		require.NoError(t, cuda.Copy(external, second, in))
		done := newEvent(t, nil)
		require.NoError(t, done.Record(external))
		require.NoError(t, external.Close())
		require.Equal(t, driver.Success, api.StreamDestroy(native))

		user := newStream(t, d, nil)
		require.NoError(t, cuda.Copy(user, spare, in)) // looks at the marks, and asks for those of closed streams
		freed := calls.count("MemFreeHost")
		returns(t, func() { require.NoError(t, in.Close()) })
		again := closeAndAskAgain(t, home, buf)
		require.Equal(t, freed, calls.count("MemFreeHost"), "a copy still reads the pinned memory")
		release()
		require.NoError(t, done.Synchronize())
		all(t, 1, out.Slice())
		holds(t, home, again, 2)
	})

	rule(t, "29 streams of others that go on", 1, func(t *testing.T, b *backend) {
		b, calls := counted(t, b, nil)
		d := b.dev()
		home, owned := newStream(t, d, nil), newStream(t, d, nil)
		external, err := d.ExternalStream(owned.Handle())
		require.NoError(t, err)
		defer func() { require.NoError(t, external.Close()) }()
		buf := allocAsync[uint32](t, home, 16)
		require.NoError(t, external.WaitStream(home))
		require.NoError(t, cuda.Fill(external, buf, 1))
		require.NoError(t, home.WaitStream(external))
		made := calls.during(func() { require.NoError(t, buf.Close()) })
		require.Zero(t, made["StreamWaitEvent"], "joined")

		buf = allocAsync[uint32](t, home, 16)
		require.NoError(t, external.WaitStream(home))
		for range 10 {
			require.NoError(t, cuda.Fill(external, buf, 1))
		}
		made = calls.during(func() { require.NoError(t, buf.Close()) })
		require.Zero(t, made["StreamWaitEvent"])
		require.Zero(t, made["EventRecord"], "recorded behind each use")
		require.NoError(t, d.Synchronize())
	})
}
