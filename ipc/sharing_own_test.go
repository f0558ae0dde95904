package ipc_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/ipc"
)

func TestOwnHandles(t *testing.T) {
	rule(t, "33 the handle of one's own event gives it again", 1, func(t *testing.T, b *backend) {
		b, calls := counted(t, b, nil)
		s := newStream(t, b.dev(), nil)
		for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 0, 3, 2}} {
			e := shareable(t, b.dev())
			token := exported(t, e)
			byHandle, err := b.dev().OpenEvent(token.Handle, nil)
			require.NoError(t, err)
			byBytes, err := cuda.EventFromIPCHandle(b.dev(), token.Handle[:])
			require.NoError(t, err)
			all := []*cuda.Event{e, byHandle, byBytes, imported(t, b, token)}
			release := hold(t, s)
			require.NoError(t, e.Record(s))
			for _, x := range all {
				require.Equal(t, native(t, e), native(t, x))
				require.False(t, query(t, x))
				require.Same(t, b.dev(), x.Device())
				require.Equal(t, token, exported(t, x))
			}
			destroyed := calls.count("EventDestroy")
			for i, n := range order {
				require.NoError(t, all[n].Close())
				_, err := all[n].Query()
				require.ErrorIs(t, err, cuda.ErrClosed)
				if i == 3 {
					break
				}
				require.Equal(t, destroyed, calls.count("EventDestroy"))
				for _, left := range order[i+1:] {
					require.False(t, query(t, all[left]))
					require.NoError(t, all[left].Record(s))
				}
			}
			release()
			_, err = ipc.ImportEvent(b.drv, token, nil)
			require.ErrorIs(t, err, cuda.ErrClosed)
			require.ErrorContains(t, err, "this process has made it, and has closed it since")
			_, err = b.dev().OpenEvent(token.Handle, nil)
			require.Error(t, err)
			clear(all)
			eventually(t, func() bool { return calls.count("EventDestroy") == destroyed+1 }) // with the last
		}
	})

	rule(t, "33 the handle of one's own memory gives it again", 1, func(t *testing.T, b *backend) {
		b, calls := counted(t, b, nil)
		s := newStream(t, b.dev(), nil)
		for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
			buf := alloc[uint32](t, b.dev(), 16)
			token := exported(t, buf)
			bytes, err := cuda.OpenBuffer[uint8](b.dev(), token.Handle, nil)
			require.NoError(t, err)
			require.Equal(t, 64, bytes.Len())
			words, err := cuda.View[uint32](bytes)
			require.NoError(t, err)
			all := []*cuda.Buffer[uint32]{buf, importedBuffer[uint32](t, b, token), words}
			closers := []func() error{buf.Close, all[1].Close, bytes.Close}
			freed, opens := calls.count("MemFree"), calls.count("IPCOpenMemHandle")
			for i, n := range order {
				for _, left := range order[i:] {
					require.Equal(t, token.Handle, exported(t, all[left]).Handle)
					require.Equal(t, buf.Pointer(), all[left].Pointer())
					require.NoError(t, cuda.Fill(s, all[left], uint32(left+7)))
					for _, other := range order[i:] {
						holds(t, s, all[other], uint32(left+7))
					}
				}
				require.Equal(t, freed, calls.count("MemFree"))
				require.NoError(t, closers[n]())
				require.ErrorIs(t, cuda.Fill(s, all[n], 0), cuda.ErrClosed)
			}
			require.Equal(t, freed+1, calls.count("MemFree"), "with the last")
			require.Equal(t, opens, calls.count("IPCOpenMemHandle"))
			_, err = ipc.ImportBuffer[uint32](b.drv, token, nil)
			require.ErrorIs(t, err, cuda.ErrClosed)
			_, err = cuda.OpenBuffer[uint8](b.dev(), token.Handle, nil)
			require.Error(t, err)
		}
	})

	rule(t, "33 the first object may be closed as long as another is open", 1, func(t *testing.T, b *backend) {
		b, calls := counted(t, b, nil)
		e := shareable(t, b.dev())
		same := imported(t, b, exported(t, e))
		buf, err := cuda.Alloc[uint32](b.dev(), 16)
		require.NoError(t, err)
		words := importedBuffer[uint32](t, b, exported(t, buf))
		require.NoError(t, e.Close())
		require.NoError(t, buf.Close())
		destroyed, freed := calls.count("EventDestroy"), calls.count("MemFree")

		event, memory := exported(t, same), exported(t, words)
		anotherEvent, err := ipc.ImportEvent(b.drv, event, nil)
		require.NoError(t, err)
		require.Equal(t, native(t, same), native(t, anotherEvent))
		another, err := ipc.ImportBuffer[uint32](b.drv, memory, nil)
		require.NoError(t, err)
		byHandle, err := cuda.OpenBuffer[uint8](b.dev(), memory.Handle, nil)
		require.NoError(t, err)
		require.Equal(t, words.Pointer(), byHandle.Pointer())
		require.NoError(t, same.Close())
		require.NoError(t, words.Close())
		require.NoError(t, byHandle.Close())
		fillNow(t, another, 6)
		require.True(t, query(t, anotherEvent))
		require.Equal(t, [2]int{destroyed, freed}, [2]int{calls.count("EventDestroy"), calls.count("MemFree")})
		require.NoError(t, anotherEvent.Close())
		require.NoError(t, another.Close())
		require.Equal(t, freed+1, calls.count("MemFree"))
		_, err = ipc.ImportEvent(b.drv, event, nil)
		require.ErrorIs(t, err, cuda.ErrClosed)
		_, err = ipc.ImportBuffer[uint32](b.drv, memory, nil)
		require.ErrorIs(t, err, cuda.ErrClosed)
	})

	rule(t, "33 waits and closing are each object's own", 1, func(t *testing.T, b *backend) {
		s, e := newStream(t, b.dev(), nil), shareable(t, b.dev())
		release := hold(t, s)
		require.NoError(t, e.Record(s))
		same := imported(t, b, exported(t, e))
		waitsForIt, waitsForSame := waits(t, e), waits(t, same)
		parked(t, b.drv, len(waitsForIt)+len(waitsForSame))
		require.NoError(t, e.Close())
		for _, w := range waitsForIt {
			require.ErrorIs(t, told(t, w), cuda.ErrClosed)
		}
		notTold(t, waitsForSame...)
		release()
		for _, w := range waitsForSame {
			require.NoError(t, told(t, w))
		}
	})

	rule(t, "33 one's own device is checked", 2, func(t *testing.T, b *backend) {
		e, buf := shareable(t, b.dev()), alloc[byte](t, b.dev(), 8)
		token := exported(t, e)
		_, err := b.devices[1].OpenEvent(token.Handle, nil)
		require.ErrorIs(t, err, cuda.ErrDeviceMismatch)
		require.ErrorContains(t, err, "of device 0 of this same process, and not of device 1")
		_, err = cuda.OpenBuffer[uint8](b.devices[1], exported(t, buf).Handle, nil)
		require.ErrorIs(t, err, cuda.ErrDeviceMismatch)
	})
}

// The driver ends a capture in which an event for other processes is recorded. The
// library refuses before, whichever object of the event it is.
func TestSharedEventsInCaptures(t *testing.T) {
	rule(t, "23 an event for other processes is recorded in no capture", 1, func(t *testing.T, b *backend) {
		s, u, buf := newStream(t, b.dev(), nil), newStream(t, b.dev(), nil), alloc[uint32](t, b.dev(), 16)
		e := shareable(t, b.dev())
		same, other := imported(t, b, exported(t, e)), shareable(t, b.dev())
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
		require.NoError(t, instantiate(t, g).Launch(s))
		holds(t, s, buf, 4)
		require.NoError(t, same.Record(u))
		require.NoError(t, e.Synchronize())
	})
}

// The driver may give a later object the handle of one that is being closed.
func TestOwnHandleGivenOutAgain(t *testing.T) {
	_, b := simulatedDevices(t, cudatest.Config{}, func(api *driver.API) {
		api.IPCGetEventHandle = func(driver.Event) (driver.IPCEventHandle, driver.Result) {
			return driver.IPCEventHandle{7}, driver.Success
		}
		api.IPCGetMemHandle = func(driver.DevicePtr) (driver.IPCMemHandle, driver.Result) {
			return driver.IPCMemHandle{7}, driver.Success
		}
	})
	early, late := shareable(t, b.dev()), shareable(t, b.dev())
	token := exported(t, early)
	require.Equal(t, native(t, early), native(t, imported(t, b, token)))
	require.Equal(t, token, exported(t, late))
	require.Equal(t, native(t, late), native(t, imported(t, b, token)))
	require.NoError(t, early.Close())
	require.Equal(t, native(t, late), native(t, imported(t, b, token)))

	earlyMemory, lateMemory := alloc[byte](t, b.dev(), 8), alloc[byte](t, b.dev(), 8)
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
	away, s, buf := newStream(t, p.there.dev(), nil), newStream(t, p.here.dev(), nil), alloc[uint32](t, p.here.dev(), 16)
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
	require.NoError(t, instantiate(t, g).Launch(s))
	holds(t, s, buf, 4)
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
	here := changed(t, p.here, func(api *driver.API) {
		api.MemGetAddressRange = func(q driver.DevicePtr) (driver.DevicePtr, uint64, driver.Result) {
			return q, math.MaxUint64, driver.Success
		}
	})
	token := exported(t, alloc[uint32](t, p.there.dev(), 16))
	_, err := cuda.OpenBuffer[uint8](here.dev(), token.Handle, nil)
	require.ErrorIs(t, err, cuda.ErrInvalid)
	require.ErrorContains(t, err, "cuda: buffer open: ")
	require.ErrorContains(t, err, "18446744073709551615 bytes are more than ")
	token.Size = math.MaxUint64 - 7
	_, err = ipc.ImportBuffer[float64](here.drv, token, nil)
	require.ErrorIs(t, err, cuda.ErrInvalid)
	p.ledger.balanced(t)
}
