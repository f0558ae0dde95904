package ipc_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
	"github.com/purecuda/cuda/ipc"
)

func TestOwnHandles(t *testing.T) {
	testgpu.Rule(t, "33 the handle of one's own event gives it again", 1, func(t *testing.T, b *testgpu.Backend) {
		b, calls := testgpu.Counted(t, b, nil)
		s := testgpu.NewStream(t, b.Device(), nil)
		for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 0, 3, 2}} {
			e := testgpu.NewSharedEvent(t, b.Device())
			token := exported(t, e)
			byHandle, err := b.Device().OpenEvent(token.Handle, nil)
			require.NoError(t, err)
			byBytes, err := cuda.EventFromIPCHandle(b.Device(), token.Handle[:])
			require.NoError(t, err)
			all := []*cuda.Event{e, byHandle, byBytes, imported(t, b, token)}
			release := testgpu.Hold(t, s)
			require.NoError(t, e.Record(s))
			for _, x := range all {
				require.Equal(t, testgpu.NativeEvent(t, e), testgpu.NativeEvent(t, x))
				require.False(t, testgpu.Query(t, x))
				require.Same(t, b.Device(), x.Device())
				require.Equal(t, token, exported(t, x))
			}
			destroyed := calls.Count("EventDestroy")
			for i, n := range order {
				require.NoError(t, all[n].Close())
				_, err := all[n].Query()
				require.ErrorIs(t, err, cuda.ErrClosed)
				if i == 3 {
					break
				}
				require.Equal(t, destroyed, calls.Count("EventDestroy"))
				for _, left := range order[i+1:] {
					require.False(t, testgpu.Query(t, all[left]))
					require.NoError(t, all[left].Record(s))
				}
			}
			release()
			_, err = ipc.ImportEvent(b.Driver, token, nil)
			require.ErrorIs(t, err, cuda.ErrClosed)
			require.ErrorContains(t, err, "this process has made it, and has closed it since")
			_, err = b.Device().OpenEvent(token.Handle, nil)
			require.Error(t, err)
			clear(all)
			testgpu.CollectUntil(t, func() bool { return calls.Count("EventDestroy") == destroyed+1 }) // with the last
		}
	})

	testgpu.Rule(t, "33 the handle of one's own memory gives it again", 1, func(t *testing.T, b *testgpu.Backend) {
		b, calls := testgpu.Counted(t, b, nil)
		s := testgpu.NewStream(t, b.Device(), nil)
		for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
			buf := testgpu.Alloc[uint32](t, b.Device(), 16)
			token := exported(t, buf)
			bytes, err := cuda.OpenBuffer[uint8](b.Device(), token.Handle, nil)
			require.NoError(t, err)
			require.Equal(t, 64, bytes.Len())
			words, err := cuda.View[uint32](bytes)
			require.NoError(t, err)
			all := []*cuda.Buffer[uint32]{buf, importedBuffer[uint32](t, b, token), words}
			closers := []func() error{buf.Close, all[1].Close, bytes.Close}
			freed, opens := calls.Count("MemFree"), calls.Count("IPCOpenMemHandle")
			for i, n := range order {
				for _, left := range order[i:] {
					require.Equal(t, token.Handle, exported(t, all[left]).Handle)
					require.Equal(t, buf.Pointer(), all[left].Pointer())
					require.NoError(t, cuda.Fill(s, all[left], uint32(left+7)))
					for _, other := range order[i:] {
						testgpu.RequireFilled(t, s, all[other], uint32(left+7))
					}
				}
				require.Equal(t, freed, calls.Count("MemFree"))
				require.NoError(t, closers[n]())
				require.ErrorIs(t, cuda.Fill(s, all[n], 0), cuda.ErrClosed)
			}
			require.Equal(t, freed+1, calls.Count("MemFree"), "with the last")
			require.Equal(t, opens, calls.Count("IPCOpenMemHandle"))
			_, err = ipc.ImportBuffer[uint32](b.Driver, token, nil)
			require.ErrorIs(t, err, cuda.ErrClosed)
			_, err = cuda.OpenBuffer[uint8](b.Device(), token.Handle, nil)
			require.Error(t, err)
		}
	})

	testgpu.Rule(t, "33 the first object may be closed as long as another is open", 1, func(t *testing.T, b *testgpu.Backend) {
		b, calls := testgpu.Counted(t, b, nil)
		e := testgpu.NewSharedEvent(t, b.Device())
		same := imported(t, b, exported(t, e))
		buf, err := cuda.Alloc[uint32](b.Device(), 16)
		require.NoError(t, err)
		words := importedBuffer[uint32](t, b, exported(t, buf))
		require.NoError(t, e.Close())
		require.NoError(t, buf.Close())
		destroyed, freed := calls.Count("EventDestroy"), calls.Count("MemFree")

		event, memory := exported(t, same), exported(t, words)
		anotherEvent, err := ipc.ImportEvent(b.Driver, event, nil)
		require.NoError(t, err)
		require.Equal(t, testgpu.NativeEvent(t, same), testgpu.NativeEvent(t, anotherEvent))
		another, err := ipc.ImportBuffer[uint32](b.Driver, memory, nil)
		require.NoError(t, err)
		byHandle, err := cuda.OpenBuffer[uint8](b.Device(), memory.Handle, nil)
		require.NoError(t, err)
		require.Equal(t, words.Pointer(), byHandle.Pointer())
		require.NoError(t, same.Close())
		require.NoError(t, words.Close())
		require.NoError(t, byHandle.Close())
		fillNow(t, another, 6)
		require.True(t, testgpu.Query(t, anotherEvent))
		require.Equal(t, [2]int{destroyed, freed}, [2]int{calls.Count("EventDestroy"), calls.Count("MemFree")})
		require.NoError(t, anotherEvent.Close())
		require.NoError(t, another.Close())
		require.Equal(t, freed+1, calls.Count("MemFree"))
		_, err = ipc.ImportEvent(b.Driver, event, nil)
		require.ErrorIs(t, err, cuda.ErrClosed)
		_, err = ipc.ImportBuffer[uint32](b.Driver, memory, nil)
		require.ErrorIs(t, err, cuda.ErrClosed)
	})

	testgpu.Rule(t, "33 waits and closing are each object's own", 1, func(t *testing.T, b *testgpu.Backend) {
		s, e := testgpu.NewStream(t, b.Device(), nil), testgpu.NewSharedEvent(t, b.Device())
		release := testgpu.Hold(t, s)
		require.NoError(t, e.Record(s))
		same := imported(t, b, exported(t, e))
		waitsForIt, waitsForSame := testgpu.Waits(t, e), testgpu.Waits(t, same)
		testgpu.Parked(t, b.Driver, len(waitsForIt)+len(waitsForSame))
		require.NoError(t, e.Close())
		for _, w := range waitsForIt {
			require.ErrorIs(t, testgpu.Receive(t, w), cuda.ErrClosed)
		}
		testgpu.NotReady(t, waitsForSame...)
		release()
		for _, w := range waitsForSame {
			require.NoError(t, testgpu.Receive(t, w))
		}
	})

	testgpu.Rule(t, "33 one's own device is checked", 2, func(t *testing.T, b *testgpu.Backend) {
		e, buf := testgpu.NewSharedEvent(t, b.Device()), testgpu.Alloc[byte](t, b.Device(), 8)
		token := exported(t, e)
		_, err := b.Devices[1].OpenEvent(token.Handle, nil)
		require.ErrorIs(t, err, cuda.ErrDeviceMismatch)
		require.ErrorContains(t, err, "of device 0 of this same process, and not of device 1")
		_, err = cuda.OpenBuffer[uint8](b.Devices[1], exported(t, buf).Handle, nil)
		require.ErrorIs(t, err, cuda.ErrDeviceMismatch)
	})
}

// The driver ends a capture in which an event for other processes is recorded. The
// library refuses before, whichever object of the event it is.
func TestSharedEventsInCaptures(t *testing.T) {
	testgpu.Rule(t, "23 an event for other processes is recorded in no capture", 1, func(t *testing.T, b *testgpu.Backend) {
		s, u, buf := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil), testgpu.Alloc[uint32](t, b.Device(), 16)
		e := testgpu.NewSharedEvent(t, b.Device())
		same, other := imported(t, b, exported(t, e)), testgpu.NewSharedEvent(t, b.Device())
		sameOther := imported(t, b, exported(t, other))
		require.NoError(t, e.Record(u))
		require.NoError(t, sameOther.Record(u))
		var refused []error
		g, err := s.Capture(func() error {
			for _, e := range []*cuda.Event{e, same, other, sameOther} {
				refused = append(refused, e.Record(s), e.Wait(s))
				if _, err := e.Query(); err != nil {
					t.Error(err)
				}
			}
			return cuda.Fill(s, buf, 4)
		})
		require.NoError(t, err, "the capture was not disturbed")
		t.Cleanup(func() { require.NoError(t, g.Close()) })
		for _, err := range refused {
			require.ErrorIs(t, err, cuda.ErrCapturing)
		}
		require.NoError(t, testgpu.Instantiate(t, g).Launch(s))
		testgpu.RequireFilled(t, s, buf, 4)
		require.NoError(t, same.Record(u))
		require.NoError(t, e.Synchronize())
	})
}

// The driver may give a later object the handle of one that is being closed.
func TestOwnHandleGivenOutAgain(t *testing.T) {
	_, b := testgpu.Simulated(t, cudatest.Config{}, func(api *driver.API) {
		api.IPCGetEventHandle = func(driver.Event) (driver.IPCEventHandle, driver.Result) {
			return driver.IPCEventHandle{7}, driver.Success
		}
		api.IPCGetMemHandle = func(driver.DevicePtr) (driver.IPCMemHandle, driver.Result) {
			return driver.IPCMemHandle{7}, driver.Success
		}
	})
	early, late := testgpu.NewSharedEvent(t, b.Device()), testgpu.NewSharedEvent(t, b.Device())
	token := exported(t, early)
	require.Equal(t, testgpu.NativeEvent(t, early), testgpu.NativeEvent(t, imported(t, b, token)))
	require.Equal(t, token, exported(t, late))
	require.Equal(t, testgpu.NativeEvent(t, late), testgpu.NativeEvent(t, imported(t, b, token)))
	require.NoError(t, early.Close())
	require.Equal(t, testgpu.NativeEvent(t, late), testgpu.NativeEvent(t, imported(t, b, token)))

	earlyMemory, lateMemory := testgpu.Alloc[byte](t, b.Device(), 8), testgpu.Alloc[byte](t, b.Device(), 8)
	memory := exported(t, earlyMemory)
	require.Equal(t, memory, exported(t, lateMemory))
	require.NoError(t, earlyMemory.Close())
	require.Equal(t, lateMemory.Pointer(), importedBuffer[byte](t, b, memory).Pointer())
}

// What another process has recorded cannot be part of a capture. A wait for it says so
// and leaves the capture as it was.
func TestImportedEventsInCaptures(t *testing.T) {
	p := newPeers(t, cudatest.Config{})
	theirs, ours := p.shared(t)
	away, s, buf := testgpu.NewStream(t, p.There.Device(), nil), testgpu.NewStream(t, p.Here.Device(), nil), testgpu.Alloc[uint32](t, p.Here.Device(), 16)
	require.NoError(t, theirs.Record(away))
	var waited, alive error
	g, err := s.Capture(func() error {
		waited = ours.Wait(s)
		if done, err := ours.Query(); err != nil || !done {
			t.Errorf("%v, %v", done, err)
		}
		alive = ours.WaitAlive(t.Context(), s)
		return cuda.Fill(s, buf, 4)
	})
	require.ErrorIs(t, waited, cuda.ErrCapturing)
	require.ErrorIs(t, alive, cuda.ErrCapturing, "what it waited for would not be in the graph")
	require.ErrorContains(t, alive, "cuda: stream wait event: ")
	require.NoError(t, ours.WaitAlive(t.Context(), s))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	require.NoError(t, testgpu.Instantiate(t, g).Launch(s))
	testgpu.RequireFilled(t, s, buf, 4)
}

func TestImportWithoutDriver(t *testing.T) {
	token := someToken(ipc.MemoryToken)
	require.NotPanics(t, func() {
		_, err := ipc.ImportBuffer[byte](nil, token, nil)
		require.ErrorIs(t, err, cuda.ErrInvalid)
		_, err = ipc.ImportEvent((*cuda.Driver)(nil), someToken(ipc.EventToken), nil)
		require.ErrorIs(t, err, cuda.ErrInvalid)
		_, err = (*cuda.Driver)(nil).FindProcess(0)
		require.ErrorIs(t, err, cuda.ErrInvalid)
	})
}

// More bytes than an int can count, which on some processors is less than a GPU has.
func TestImportTooLarge(t *testing.T) {
	p := newPeers(t, cudatest.Config{})
	here := testgpu.Modified(t, p.Here, func(api *driver.API) {
		api.MemGetAddressRange = func(q driver.DevicePtr) (driver.DevicePtr, uint64, driver.Result) {
			return q, math.MaxUint64, driver.Success
		}
	})
	token := exported(t, testgpu.Alloc[uint32](t, p.There.Device(), 16))
	_, err := cuda.OpenBuffer[uint8](here.Device(), token.Handle, nil)
	require.ErrorIs(t, err, cuda.ErrInvalid)
	require.ErrorContains(t, err, "cuda: buffer open: ")
	require.ErrorContains(t, err, "18446744073709551615 bytes are more than ")
	token.Size = math.MaxUint64 - 7
	_, err = ipc.ImportBuffer[float64](here.Driver, token, nil)
	require.ErrorIs(t, err, cuda.ErrInvalid)
	p.ledger.balanced(t)
}
