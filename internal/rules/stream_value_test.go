package rules_test

import (
	"context"
	"errors"
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

// hostWord is pinned memory whose words are v.
func hostWord(t testing.TB, d *cuda.Device, n int, v uint32) *cuda.HostBuffer[uint32] {
	t.Helper()
	b := testgpu.AllocHost[uint32](t, d, n)
	for i := range b.Slice() {
		atomic.StoreUint32(&b.Slice()[i], v)
	}
	return b
}

// storedAtEnd sees to it that the streams that wait for a word in steps below half of the
// range go on at the end, however the test ends.
func storedAtEnd(t testing.TB, d *cuda.Device, word *cuda.HostBuffer[uint32], values ...uint32) {
	t.Cleanup(func() {
		for _, v := range values {
			atomic.StoreUint32(&word.Slice()[0], v)
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, d.Synchronize())
	})
}

func TestStreamValues(t *testing.T) {
	testgpu.Rule(t, "01 a stream waits until a word is large enough, and a store by the CPU ends it", 1, func(t *testing.T, b *testgpu.Backend) {
		s, word, p := testgpu.NewStream(t, b.Device(), nil), hostWord(t, b.Device(), 1, 4), testgpu.NewPipe(t, b.Device())
		storedAtEnd(t, b.Device(), word, 1000)
		at := &word.Slice()[0]
		require.NoError(t, s.WaitValue(word, 4), "as large as that is enough")
		require.NoError(t, s.WaitValue(word, 3))
		testgpu.Returns(t, func() { require.NoError(t, s.Synchronize()) })
		p.Set(7)
		testgpu.Returns(t, func() {
			require.NoError(t, s.WaitValue(word, 6))
			p.Enqueue(t, s)
		})
		for _, v := range []uint32{4, 5, 3} {
			atomic.StoreUint32(at, v)
			time.Sleep(testgpu.Soon)
			require.False(t, testgpu.Query(t, s), v)
			p.Require(t, 0)
		}
		ctx, cancel := context.WithTimeout(t.Context(), testgpu.Soon)
		defer cancel()
		require.ErrorIs(t, s.SynchronizeContext(ctx), context.DeadlineExceeded)
		atomic.StoreUint32(at, 100)
		require.NoError(t, s.Synchronize())
		p.Require(t, 7)
	})

	testgpu.Rule(t, "01 a word that wraps around", 1, func(t *testing.T, b *testgpu.Backend) {
		s, word := testgpu.NewStream(t, b.Device(), nil), hostWord(t, b.Device(), 1, 0)
		storedAtEnd(t, b.Device(), word, 0, 1<<30, 1<<31, 3<<30, 0, 1<<30) // all the way round
		for _, c := range []struct {
			word, value uint32
			enough      bool
		}{
			{0, 0, true}, {0, 1, false}, {1, 0, true},
			{0xfffffffe, 0xffffffff, false}, {0xffffffff, 0xffffffff, true},
			{0xfffffffe, 1, false}, {0, 1, false}, {1, 0xfffffff0, true}, {0, 0xffffffff, true},
			{1<<31 - 1, 0, true}, {1 << 31, 0, false}, {5, 0x80000006, true}, {5, 0x80000005, false},
		} {
			atomic.StoreUint32(&word.Slice()[0], c.word)
			require.NoError(t, s.WaitValue(word, c.value))
			if c.enough {
				testgpu.Returns(t, func() { require.NoError(t, s.Synchronize()) })
				continue
			}
			time.Sleep(testgpu.Soon)
			require.False(t, testgpu.Query(t, s), "%+v", c)
			atomic.StoreUint32(&word.Slice()[0], c.value)
			testgpu.Returns(t, func() { require.NoError(t, s.Synchronize()) })
		}
	})

	testgpu.Rule(t, "01 a value is written in the order of the stream", 1, func(t *testing.T, b *testgpu.Backend) {
		for name, word := range map[string]cuda.Memory[uint32]{
			"of the device": testgpu.Alloc[uint32](t, b.Device(), 1), "of the host": hostWord(t, b.Device(), 1, 0),
		} {
			s, u, p := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil), testgpu.NewPipe(t, b.Device())
			there, out := testgpu.Alloc[uint32](t, b.Device(), 1), testgpu.AllocHost[uint32](t, b.Device(), 1)
			require.NoError(t, s.WriteValue(word, 40))
			require.NoError(t, cuda.Copy(s, there, word)) // and not to the host: that may wait for the stream
			require.NoError(t, cuda.Copy(s, out, there))
			require.NoError(t, s.Synchronize())
			require.EqualValues(t, 40, out.Slice()[0], name)

			p.Set(9)
			release := testgpu.Hold(t, s)
			require.NoError(t, cuda.Copy(s, p.Buf, p.In))
			require.NoError(t, s.WriteValue(word, 41))
			require.NoError(t, s.WriteValue(word, 42))
			require.NoError(t, u.WaitValue(word, 42))
			require.NoError(t, cuda.Copy(u, p.Out, p.Buf))
			require.NoError(t, cuda.Copy(u, there, word))
			require.NoError(t, cuda.Copy(u, out, there))
			time.Sleep(testgpu.Soon)
			require.False(t, testgpu.Query(t, s), name)
			require.False(t, testgpu.Query(t, u), name)
			p.Require(t, 0)
			release()
			require.NoError(t, u.Synchronize())
			p.Require(t, 9)
			require.EqualValues(t, 42, out.Slice()[0], name)
		}
	})

	testgpu.Rule(t, "01 the word of a range", 1, func(t *testing.T, b *testgpu.Backend) {
		s, words := testgpu.NewStream(t, b.Device(), nil), hostWord(t, b.Device(), 4, 0)
		word, err := words.Range(2, 4)
		require.NoError(t, err)
		at := words.Slice()
		require.NoError(t, s.WriteValue(word, 1))
		require.NoError(t, s.Synchronize())
		require.Equal(t, []uint32{0, 0, 1, 0}, at)
		require.NoError(t, s.WaitValue(word, 2))
		for _, i := range []int{0, 1, 3} {
			atomic.StoreUint32(&at[i], 2)
		}
		time.Sleep(testgpu.Soon)
		done := testgpu.Query(t, s)
		atomic.StoreUint32(&at[2], 2)
		require.NoError(t, s.Synchronize())
		require.False(t, done)

		device := testgpu.Alloc[uint32](t, b.Device(), 4)
		require.NoError(t, cuda.Fill(s, device, 5))
		part, err := device.Range(2, 4)
		require.NoError(t, err)
		require.NoError(t, s.WriteValue(part, 6))
		require.NoError(t, s.WaitValue(part, 6))
		out := make([]uint32, 4)
		require.NoError(t, cuda.CopyToSlice(t.Context(), s, out, device))
		require.Equal(t, []uint32{5, 5, 6, 5}, out)

		pool := testgpu.AllocAsync[uint32](t, s, 2)
		require.ErrorIs(t, s.WriteValue(pool, 8), cuda.ErrInvalid)
		require.ErrorContains(t, s.WaitValue(pool, 8), "AllocAsync")
		require.NoError(t, b.Device().DefaultStream().WriteValue(words, 11))
		require.NoError(t, b.Device().DefaultStream().WaitValue(words, 11))
		require.NoError(t, b.Device().Synchronize())
		require.EqualValues(t, 11, at[0])
	})

	testgpu.Rule(t, "01 misuse", 1, func(t *testing.T, b *testgpu.Backend) {
		s, word := testgpu.NewStream(t, b.Device(), nil), hostWord(t, b.Device(), 2, 0)
		none, err := word.Range(1, 1)
		require.NoError(t, err)
		noBuffer, err := testgpu.Alloc[uint32](t, b.Device(), 2).Range(0, 0)
		require.NoError(t, err)
		over, overHost := testgpu.Alloc[uint32](t, b.Device(), 1), testgpu.AllocHost[uint32](t, b.Device(), 1)
		require.NoError(t, over.Close())
		require.NoError(t, overHost.Close())
		closed, err := b.Device().NewStream(nil)
		require.NoError(t, err)
		require.NoError(t, closed.Close())
		far := testgpu.Modified(t, b, func(*driver.API) {})
		for name, c := range map[string]struct {
			s    *cuda.Stream
			word cuda.Memory[uint32]
			err  error
		}{
			"no memory":           {s, nil, cuda.ErrInvalid},
			"a nil buffer":        {s, (*cuda.Buffer[uint32])(nil), cuda.ErrInvalid},
			"a zero buffer":       {s, &cuda.Buffer[uint32]{}, cuda.ErrInvalid},
			"a nil host buffer":   {s, (*cuda.HostBuffer[uint32])(nil), cuda.ErrInvalid},
			"an empty range":      {s, none, cuda.ErrInvalid},
			"an empty buffer":     {s, noBuffer, cuda.ErrInvalid},
			"a closed buffer":     {s, over, cuda.ErrClosed},
			"closed host memory":  {s, overHost, cuda.ErrClosed},
			"a closed stream":     {closed, word, cuda.ErrClosed},
			"no stream":           {nil, word, cuda.ErrInvalid},
			"of another driver":   {s, testgpu.AllocHost[uint32](t, far.Device(), 1), cuda.ErrDeviceMismatch},
			"on another driver's": {testgpu.NewStream(t, far.Device(), nil), word, cuda.ErrDeviceMismatch},
		} {
			err := c.s.WaitValue(c.word, 0)
			require.ErrorIs(t, err, c.err, name)
			require.ErrorContains(t, err, "cuda: stream wait value: ", name)
			err = c.s.WriteValue(c.word, 0)
			require.ErrorIs(t, err, c.err, name)
			require.ErrorContains(t, err, "cuda: stream write value: ", name)
		}
		require.NoError(t, s.Synchronize())
	})

	testgpu.Rule(t, "23 waiting for a value and writing one are captured", 1, func(t *testing.T, b *testgpu.Backend) {
		s, word, wrote, p := testgpu.NewStream(t, b.Device(), nil), hostWord(t, b.Device(), 1, 0), hostWord(t, b.Device(), 1, 0), testgpu.NewPipe(t, b.Device())
		storedAtEnd(t, b.Device(), word, 1000)
		p.Set(3)
		var refused error
		g, err := s.Capture(func() error {
			if refused = s.WaitValue(word, 1); refused != nil {
				return nil
			}
			p.Enqueue(t, s)
			return s.WriteValue(wrote, 5)
		})
		if refused != nil {
			if err == nil {
				require.NoError(t, g.Close())
			}
			require.NotErrorIs(t, refused, cuda.ErrInvalid)
			t.Skip("the driver does not capture it: ", refused)
		}
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, g.Close()) })
		x := testgpu.Instantiate(t, g)
		require.True(t, testgpu.Query(t, s))
		require.NoError(t, x.Launch(s))
		time.Sleep(testgpu.Soon)
		require.False(t, testgpu.Query(t, s))
		p.Require(t, 0)
		atomic.StoreUint32(&word.Slice()[0], 1)
		require.NoError(t, s.Synchronize())
		p.Require(t, 3)
		require.EqualValues(t, 5, wrote.Slice()[0])
	})

	testgpu.Rule(t, "29 pinned memory closed while a stream waits for a value in it", 1, func(t *testing.T, b *testgpu.Backend) {
		b, calls := testgpu.Counted(t, b, nil)
		s := testgpu.NewStream(t, b.Device(), nil)
		word, err := cuda.AllocHost[uint32](b.Device(), 1, nil)
		require.NoError(t, err)
		at := &word.Slice()[0]
		atomic.StoreUint32(at, 0)
		require.NoError(t, s.WaitValue(word, 1))
		testgpu.Returns(t, func() { require.NoError(t, word.Close()) })
		require.ErrorIs(t, s.WaitValue(word, 1), cuda.ErrClosed)
		time.Sleep(testgpu.Soon)
		require.Zero(t, calls.Count("MemFreeHost"))
		require.False(t, testgpu.Query(t, s))
		atomic.StoreUint32(at, 1) // it was not freed, so it is still there
		require.NoError(t, s.Synchronize())
		testgpu.WaitUntil(t, func() bool { return calls.Count("MemFreeHost") == 1 })
	})
}

func TestStreamValuesUnsupported(t *testing.T) {
	for name, change := range map[string]func(*driver.API){
		"an old driver": func(api *driver.API) { api.StreamWaitValue32, api.StreamWriteValue32 = nil, nil },
		"an old device": func(api *driver.API) {
			api.StreamWaitValue32 = func(driver.Stream, driver.DevicePtr, uint32, uint32) driver.Result {
				return driver.ErrorNotSupported
			}
			api.StreamWriteValue32 = api.StreamWaitValue32
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, d := testgpu.SimulatedDevice(t, change)
			s, word := testgpu.NewStream(t, d, nil), testgpu.AllocHost[uint32](t, d, 1)
			for _, err := range []error{s.WaitValue(word, 0), s.WriteValue(word, 0)} {
				require.ErrorIs(t, err, errors.ErrUnsupported)
				require.ErrorContains(t, err, "no memory operations for streams")
			}
			require.NoError(t, s.Synchronize())
		})
	}
	_, d := testgpu.SimulatedDevice(t, func(api *driver.API) {
		api.StreamWriteValue32 = func(driver.Stream, driver.DevicePtr, uint32, uint32) driver.Result { return driver.ErrorOutOfMemory }
	})
	err := testgpu.NewStream(t, d, nil).WriteValue(testgpu.AllocHost[uint32](t, d, 1), 0)
	require.ErrorIs(t, err, driver.ErrorOutOfMemory)
	require.NotErrorIs(t, err, errors.ErrUnsupported)
}

// A word that two processes share orders them, and the survivor of one's death can
// end its own waits.
func TestStreamValuesBetweenProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := testgpu.NewPeers(t, cudatest.Config{})
		t.Cleanup(p.Exporter.Kill)
		theirs := testgpu.Alloc[uint32](t, p.There.Device(), 2)
		s, u := testgpu.NewStream(t, p.There.Device(), nil), testgpu.NewStream(t, p.Here.Device(), nil)
		require.NoError(t, cuda.Fill(s, theirs, 0))
		require.NoError(t, s.Synchronize())
		ours := testgpu.OpenBuffer[uint32](t, p, theirs, nil)
		p.GPU.Run(s, time.Hour)
		require.NoError(t, s.WriteValue(theirs, 1))
		began := time.Now()
		require.NoError(t, u.WaitValue(ours, 1))
		require.NoError(t, u.Synchronize())
		testgpu.OnTime(t, began, time.Hour)

		p.GPU.Run(s, time.Hour)
		require.NoError(t, s.WriteValue(theirs, 2))
		require.NoError(t, u.WaitValue(ours, 2))
		p.Exporter.Kill()
		time.Sleep(24 * time.Hour)
		require.False(t, testgpu.Query(t, u))
		helper := testgpu.NewStream(t, p.Here.Device(), nil)
		require.NoError(t, helper.WriteValue(ours, 2))
		require.NoError(t, u.Synchronize())
	})
}
