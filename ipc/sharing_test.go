package ipc_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
	"github.com/purecuda/cuda/ipc"
)

func TestFindProcess(t *testing.T) {
	testgpu.Rule(t, "31 a token names its exporter", 1, func(t *testing.T, b *testgpu.Backend) {
		self, err := b.Driver.FindProcess(0)
		require.NoError(t, err)
		require.NotZero(t, self.PID)
		again, err := b.Driver.FindProcess(self.PID)
		require.NoError(t, err)
		require.Equal(t, self, again)
		id, err := b.Device().UUID()
		require.NoError(t, err)
		e, buf := testgpu.NewSharedEvent(t, b.Device()), testgpu.Alloc[byte](t, b.Device(), 64)
		h, err := e.IPCHandle()
		require.NoError(t, err)
		require.Equal(t, ipc.Token{Kind: ipc.EventToken, Handle: h, Device: id, Process: self}, exported(t, e))
		m, err := buf.IPCHandle()
		require.NoError(t, err)
		require.Equal(t, ipc.Token{Kind: ipc.MemoryToken, Handle: m, Size: 64, Device: id, Process: self}, exported(t, buf))
		for _, pid := range []int{-1, 1<<30 + 1} {
			_, err = b.Driver.FindProcess(pid)
			require.ErrorIs(t, err, cuda.ErrPeerGone)
		}
	})
	p := newPeers(t, cudatest.Config{})
	theirs, err := p.There.Driver.FindProcess(0)
	require.NoError(t, err)
	found, err := p.Here.Driver.FindProcess(theirs.PID)
	require.NoError(t, err)
	require.Equal(t, theirs, found)
	p.Exporter.Kill()
	_, err = p.Here.Driver.FindProcess(theirs.PID)
	require.ErrorIs(t, err, cuda.ErrPeerGone)
	require.ErrorContains(t, err, "cuda: process find: ")
}

// What no platform tells is an error of its own, and the handles work without it.
func TestPlatformWithoutProcesses(t *testing.T) {
	p := newPeers(t, cudatest.Config{})
	unsupported := &driver.Processes{
		Find: func(int) (driver.Process, error) { return driver.Process{}, errors.ErrUnsupported },
	}
	here := testgpu.Modified(t, p.Here, func(api *driver.API) { api.Processes = unsupported })
	there := testgpu.Modified(t, p.There, func(api *driver.API) { api.Processes = unsupported })
	e := testgpu.NewSharedEvent(t, there.Device())
	_, err := ipc.ExportEvent(e)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "cuda: event export: ")
	_, err = ipc.ImportEvent(here.Driver, exported(t, p.event(t)), nil)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "cuda: event import: ")
	_, err = here.Driver.FindProcess(0)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	h, err := e.IPCHandle()
	require.NoError(t, err)
	opened, err := here.Device().OpenEvent(h, nil)
	require.NoError(t, err)
	require.NoError(t, opened.Close())
}

func TestExportErrors(t *testing.T) {
	testgpu.Rule(t, "31 what cannot be shared says so", 1, func(t *testing.T, b *testgpu.Backend) {
		s := testgpu.NewStream(t, b.Device(), nil)
		pool := testgpu.AllocAsync[uint32](t, s, 64)
		part, err := pool.Range(1, 2)
		require.NoError(t, err)
		for _, buf := range []*cuda.Buffer[uint32]{pool, part} {
			_, err = buf.IPCHandle()
			require.ErrorIs(t, err, cuda.ErrNotInterprocess)
			require.ErrorContains(t, err, "cuda: buffer ipc handle: ")
			require.ErrorContains(t, err, "share memory of Alloc")
			_, err = ipc.ExportBuffer(buf)
			require.ErrorIs(t, err, cuda.ErrNotInterprocess)
			require.ErrorContains(t, err, "cuda: buffer export: ")
		}
		e := testgpu.NewEvent(t, nil)
		require.NoError(t, e.Record(s))
		_, err = ipc.ExportEvent(e)
		require.ErrorIs(t, err, cuda.ErrNotInterprocess)
		require.ErrorContains(t, err, "cuda: event export: ")

		gone, over := testgpu.NewSharedEvent(t, b.Device()), testgpu.Alloc[byte](t, b.Device(), 8)
		require.NoError(t, gone.Close())
		require.NoError(t, over.Close())
		_, err = ipc.ExportEvent(gone)
		require.ErrorIs(t, err, cuda.ErrClosed)
		_, err = ipc.ExportBuffer(over)
		require.ErrorIs(t, err, cuda.ErrClosed)
		_, err = over.IPCHandle()
		require.ErrorIs(t, err, cuda.ErrClosed)

		_, err = ipc.ExportEvent(nil)
		require.ErrorIs(t, err, cuda.ErrInvalid)
		for _, none := range []*cuda.Buffer[byte]{nil, {}} {
			_, err = ipc.ExportBuffer(none)
			require.ErrorIs(t, err, cuda.ErrInvalid)
			_, err = none.IPCHandle()
			require.ErrorIs(t, err, cuda.ErrInvalid)
		}
		_, err = cuda.OpenBuffer[uint8](nil, driver.IPCMemHandle{}, nil)
		require.ErrorIs(t, err, cuda.ErrInvalid)
		_, err = (*cuda.Device)(nil).OpenEvent(driver.IPCEventHandle{}, nil)
		require.ErrorIs(t, err, cuda.ErrInvalid)
	})
}

// A part of memory passes as that part, whatever its elements are here and there.
func TestPartsOfMemory(t *testing.T) {
	check := func(t *testing.T, there, here *testgpu.Backend) {
		buf := testgpu.Alloc[uint32](t, there.Device(), 64)
		part, err := buf.Range(10, 30)
		require.NoError(t, err)
		of, err := part.Range(5, 15)
		require.NoError(t, err)
		view, err := cuda.View[byte](of)
		require.NoError(t, err)
		odd, err := view.Range(3, 39)
		require.NoError(t, err)
		base := exported(t, buf)
		for _, c := range []struct {
			x            ipc.Shared
			offset, size uint64
		}{{buf, 0, 256}, {part, 40, 80}, {of, 60, 40}, {view, 60, 40}, {odd, 63, 36}} {
			want := base
			want.Offset, want.Size = c.offset, c.size
			require.Equal(t, want, exported(t, c.x))
		}
		whole := importedBuffer[uint32](t, here, base)
		words := importedBuffer[uint32](t, here, exported(t, view))
		floats := importedBuffer[float64](t, here, exported(t, part))
		bytes := importedBuffer[byte](t, here, exported(t, odd))
		require.Equal(t, []int{64, 10, 10, 36}, []int{whole.Len(), words.Len(), floats.Len(), bytes.Len()})
		require.Equal(t, []driver.DevicePtr{60, 40, 63},
			[]driver.DevicePtr{words.Pointer() - whole.Pointer(), floats.Pointer() - whole.Pointer(), bytes.Pointer() - whole.Pointer()})
		for _, x := range []ipc.Shared{whole, words, floats, bytes} {
			again := exported(t, x)
			require.Equal(t, base.Handle, again.Handle)
			require.Equal(t, base.Process, again.Process)
		}
		require.Equal(t, exported(t, odd), exported(t, bytes))
		inner, err := words.Range(2, 4)
		require.NoError(t, err)
		require.Equal(t, uint64(68), exported(t, inner).Offset, "of the allocation, wherever it was imported")
		_, err = ipc.ImportBuffer[uint16](here.Driver, exported(t, odd), nil)
		require.ErrorIs(t, err, cuda.ErrInvalid)
		_, err = ipc.ImportBuffer[complex128](here.Driver, exported(t, part), nil)
		require.ErrorIs(t, err, cuda.ErrInvalid, "40 is no multiple of 16")

		fillNow(t, buf, 1)
		s := testgpu.NewStream(t, here.Device(), nil)
		require.NoError(t, cuda.Fill(s, inner, 2))
		require.NoError(t, s.Synchronize())
		out := make([]uint32, 64)
		require.NoError(t, cuda.CopyToSlice(t.Context(), testgpu.NewStream(t, there.Device(), nil), out, buf))
		for i, v := range out {
			want := uint32(1)
			if i == 17 || i == 18 {
				want = 2
			}
			require.Equal(t, want, v, "element %d", i)
		}
	}
	testgpu.Rule(t, "31 a part of memory, in one process", 1, func(t *testing.T, b *testgpu.Backend) { check(t, b, b) })
	p := newPeers(t, cudatest.Config{})
	check(t, p.There, p.Here)
	require.Equal(t, 1, p.ledger.opens, "opened once")
}

// What was imported can be passed on, and names the one who made it.
func TestExportingAgain(t *testing.T) {
	p := newPeers(t, cudatest.Config{})
	third, _ := kept(t, p.GPU.NewProcess().API())
	theirs, buf := p.event(t), testgpu.Alloc[uint32](t, p.There.Device(), 16)
	event, memory := exported(t, theirs), exported(t, buf)
	e, words := imported(t, p.Here, event), importedBuffer[uint32](t, p.Here, memory)
	require.Equal(t, event, exported(t, e))
	require.Equal(t, memory, exported(t, words))
	h, err := e.IPCHandle()
	require.NoError(t, err)
	require.EqualValues(t, event.Handle, h)
	m, err := words.IPCHandle()
	require.NoError(t, err)
	require.EqualValues(t, memory.Handle, m)

	far, its := imported(t, third, exported(t, e)), importedBuffer[uint32](t, third, exported(t, words))
	s := testgpu.NewStream(t, p.There.Device(), nil)
	release := p.GPU.Hold(s)
	require.NoError(t, cuda.Fill(s, buf, 9))
	require.NoError(t, theirs.Record(s))
	require.False(t, testgpu.Query(t, far))
	u := testgpu.NewStream(t, third.Device(), nil)
	require.NoError(t, far.Wait(u))
	out := testgpu.AllocHost[uint32](t, third.Device(), 16)
	require.NoError(t, cuda.Copy(u, out, its))
	release()
	require.NoError(t, u.Synchronize())
	testgpu.RequireAll(t, 9, out.Slice())

	back := imported(t, p.There, exported(t, far))
	require.Equal(t, testgpu.NativeEvent(t, theirs), testgpu.NativeEvent(t, back), "it is the exporter's own")

	anonymous, err := p.Here.Device().OpenEvent(event.Handle, nil)
	require.NoError(t, err)
	_, err = ipc.ExportEvent(anonymous)
	require.ErrorIs(t, err, cuda.ErrInvalid)
	require.ErrorContains(t, err, "does not say whose")
	require.NoError(t, anonymous.Close())
	bytes, err := cuda.OpenBuffer[uint8](p.Here.Device(), memory.Handle, nil)
	require.NoError(t, err)
	_, err = ipc.ExportBuffer(bytes)
	require.ErrorIs(t, err, cuda.ErrInvalid)
	require.NoError(t, bytes.Close())
}

// Whoever closes first takes nothing from the other.
func TestCloseOrders(t *testing.T) {
	for name, exporterFirst := range map[string]bool{"exporter's first": true, "importer's first": false} {
		t.Run(name, func(t *testing.T) {
			p := newPeers(t, cudatest.Config{})
			theirs, ours := p.shared(t)
			buf := testgpu.Alloc[uint32](t, p.There.Device(), 16)
			words := importedBuffer[uint32](t, p.Here, exported(t, buf))
			s, u := testgpu.NewStream(t, p.There.Device(), nil), testgpu.NewStream(t, p.Here.Device(), nil)
			fillNow(t, buf, 3)
			require.NoError(t, theirs.Record(s))
			if exporterFirst {
				require.NoError(t, theirs.Close())
				require.NoError(t, buf.Close())
				require.True(t, testgpu.Query(t, ours))
				require.NoError(t, ours.Wait(u))
				testgpu.RequireFilled(t, u, words, 3)
				fillNow(t, words, 4)
				testgpu.RequireFilled(t, u, words, 4)
				require.NoError(t, ours.Record(u))
				require.NoError(t, ours.Synchronize())
				return
			}
			require.NoError(t, ours.Close())
			require.NoError(t, words.Close())
			p.ledger.requireOpens(t, 2, 2)
			require.True(t, testgpu.Query(t, theirs))
			require.NoError(t, theirs.Record(s))
			testgpu.RequireFilled(t, s, buf, 3)
			require.Zero(t, p.ledger.watches())
		})
	}
}
