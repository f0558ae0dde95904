package rules_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// Memory whose home is unusual, or which is used from far away.
func TestLifetimeEdges(t *testing.T) {
	testgpu.Rule(t, "29 a home of others, destroyed before the memory is closed", 1, func(t *testing.T, b *testgpu.Backend) {
		b, calls := testgpu.Counted(t, b, nil)
		d := b.Device()
		api, out := b.Driver.API(), testgpu.AllocHost[uint32](t, d, testgpu.FilledSize)
		var native driver.Stream
		require.Equal(t, driver.Success, testgpu.InContext(d, func() (r driver.Result) {
			native, r = api.StreamCreateWithPriority(driver.StreamNonBlocking, 0)
			return r
		}))
		external, err := d.ExternalStream(native)
		require.NoError(t, err)
		buf := testgpu.Filled(t, external, 1)
		release := testgpu.Hold(t, external)
		require.NoError(t, cuda.Copy(external, out, buf))
		done := testgpu.NewEvent(t, nil)
		require.NoError(t, done.Record(external))
		require.NoError(t, external.Close())
		require.Equal(t, driver.Success, api.StreamDestroy(native))

		var again *cuda.Buffer[uint32]
		made := calls.During(func() { again = testgpu.CloseAndAllocate(t, d.DefaultStream(), buf) })
		require.Zero(t, made["MemFreeAsync"], "it is used")
		release()
		require.NoError(t, done.Synchronize())
		testgpu.RequireAll(t, 1, out.Slice())
		testgpu.RequireFilled(t, d.DefaultStream(), again, 2)
	})

	testgpu.Rule(t, "29 a wrapper of the home is the home", 1, func(t *testing.T, b *testgpu.Backend) {
		b, calls := testgpu.Counted(t, b, nil)
		home := testgpu.NewStream(t, b.Device(), nil)
		wrapper, err := b.Device().ExternalStream(home.Handle())
		require.NoError(t, err)
		defer func() { require.NoError(t, wrapper.Close()) }()
		buf := testgpu.AllocAsync[uint32](t, home, 16)
		made := calls.During(func() {
			require.NoError(t, cuda.Fill(wrapper, buf, 1))
			require.NoError(t, cuda.Fill(wrapper, buf, 2))
			require.NoError(t, buf.Close())
		})
		require.Zero(t, made["EventCreate"]+made["EventRecord"]+made["StreamWaitEvent"])
		require.Equal(t, 1, made["MemFreeAsync"])
	})

	testgpu.Rule(t, "29 plain memory read by another device", 2, func(t *testing.T, b *testgpu.Backend) {
		b, calls := testgpu.Counted(t, b, nil)
		home, reader := testgpu.NewStream(t, b.Devices[0], nil), testgpu.NewStream(t, b.Devices[1], nil)
		out, buf := testgpu.AllocHost[uint32](t, b.Devices[1], testgpu.FilledSize), testgpu.Alloc[uint32](t, b.Devices[0], testgpu.FilledSize)
		require.NoError(t, cuda.Fill(home, buf, 1))
		require.NoError(t, home.Synchronize())
		release := testgpu.Hold(t, reader)
		require.NoError(t, cuda.Copy(reader, out, buf))
		closed := make(chan error, 1)
		go func() { closed <- buf.Close() }()
		select {
		case err := <-closed:
			t.Fatal("did not wait for the reader:", err)
		case <-time.After(testgpu.Soon):
		}
		require.Zero(t, calls.Count("MemFree"))
		release()
		testgpu.Returns(t, func() { require.NoError(t, <-closed) })
		require.Equal(t, 1, calls.Count("MemFree"))
		require.NoError(t, reader.Synchronize())
		testgpu.RequireAll(t, 1, out.Slice())
	})

	testgpu.Rule(t, "09 work on another device's pool memory", 2, func(t *testing.T, b *testgpu.Backend) {
		home, s := testgpu.NewStream(t, b.Devices[0], nil), testgpu.NewStream(t, b.Devices[1], nil)
		from, to := testgpu.Filled(t, home, 1), testgpu.Filled(t, home, 0)
		require.NoError(t, s.WaitStream(home))
		for _, c := range []struct {
			name string
			want uint32
			work func() error
		}{
			{"copy", 1, func() error { return cuda.Copy(s, to, from) }},
			{"fill", 2, func() error { return cuda.Fill(s, to, 2) }},
			{"copy 2d", 1, func() error { return cuda.Copy2D(s, to, 256, from, 256, 256, testgpu.FilledSize/256) }},
		} {
			err := c.work()
			if c.name == "fill" && err != nil { // the driver may want more than the copies need
				require.ErrorContains(t, err, "EnablePeerAccess")
				continue
			}
			require.NoError(t, err, c.name)
			require.NoError(t, home.WaitStream(s))
			testgpu.RequireFilled(t, home, to, c.want)
		}
	})
}

func TestDefaultStreamBesideACapture(t *testing.T) {
	for _, c := range []struct {
		name string
		work func(zero, other *cuda.Stream, buf, from *cuda.Buffer[uint32], e *cuda.Event) error
	}{
		{"Record", func(zero, _ *cuda.Stream, _, _ *cuda.Buffer[uint32], e *cuda.Event) error { return e.Record(zero) }},
		{"Fill", func(zero, _ *cuda.Stream, buf, _ *cuda.Buffer[uint32], _ *cuda.Event) error {
			return cuda.Fill(zero, buf, 1)
		}},
		{"Copy", func(zero, _ *cuda.Stream, buf, from *cuda.Buffer[uint32], _ *cuda.Event) error {
			return cuda.Copy(zero, buf, from)
		}},
		{"WaitStream", func(zero, other *cuda.Stream, _, _ *cuda.Buffer[uint32], _ *cuda.Event) error {
			return zero.WaitStream(other)
		}},
		{"WaitStream for it", func(zero, other *cuda.Stream, _, _ *cuda.Buffer[uint32], _ *cuda.Event) error {
			return other.WaitStream(zero)
		}},
	} {
		testgpu.Rule(t, "23 "+c.name+" on a default stream that a captured one waits for", 1, func(t *testing.T, b *testgpu.Backend) {
			d := b.Device()
			s, other := testgpu.NewStream(t, d, &cuda.StreamOptions{SyncWithDefault: true}), testgpu.NewStream(t, d, nil)
			buf, from, e := testgpu.Alloc[uint32](t, d, 16), testgpu.Alloc[uint32](t, d, 16), testgpu.NewEvent(t, nil)
			work := func() error { return c.work(d.DefaultStream(), other, buf, from, e) }
			g, err := s.Capture(func() error {
				require.ErrorIs(t, work(), cuda.ErrCapturing)
				return cuda.Fill(s, buf, 1)
			})
			require.NoError(t, err, "the capture lives")
			require.NoError(t, g.Close())
			require.NoError(t, work(), "when it is over")
			require.NoError(t, d.Synchronize())
		})
	}
}

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

	testgpu.RuleWithRaces(t, "29 memory that outlives a thousand streams", 1, func(t *testing.T, b *testgpu.Backend) {
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
