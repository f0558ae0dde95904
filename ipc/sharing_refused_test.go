package ipc_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
	"github.com/purecuda/cuda/ipc"
)

// wrongToken is a token in which one thing is wrong.
type wrongToken struct {
	name   string
	change func(*ipc.Token)
	err    error
	text   string
}

// wrongTokens are wrong whatever they are of, wherever they come from.
var wrongTokens = []wrongToken{
	{"nothing", func(x *ipc.Token) { *x = ipc.Token{} }, cuda.ErrInvalid, "the token is of kind 0, and not of "},
	{"the other kind", func(x *ipc.Token) { x.Kind = 3 - x.Kind }, cuda.ErrInvalid, ", and not of "},
	{"of another kind", func(x *ipc.Token) { x.Kind = 3 }, cuda.ErrInvalid, "the token is of kind 3"},
	{"of an unknown device", func(x *ipc.Token) { x.Device[15] ^= 0x80 }, cuda.ErrNoDevice, "which this process does not see; it sees [GPU-"},
	{"another boot", func(x *ipc.Token) { x.Process.Boot[3] ^= 1 }, cuda.ErrUnreachable, "before this machine was restarted"},
	{"another machine", func(x *ipc.Token) { x.Process.Boot[3] ^= 1; x.Device = driver.UUID{1} }, cuda.ErrUnreachable, "comes from another machine (boot id"},
	{"no boot", func(x *ipc.Token) { x.Process.Boot = driver.Boot{} }, cuda.ErrUnreachable, "00000000-0000-0000-0000-000000000000"},
	{"another namespace", func(x *ipc.Token) { x.Process.Namespace++ }, cuda.ErrUnreachable, "PID namespace"},
	{"no such process", func(x *ipc.Token) { x.Process.PID = 1<<30 + 1 }, cuda.ErrPeerGone, "process 1073741825, which exported it, has ended"},
	{"process 0", func(x *ipc.Token) { x.Process.PID = 0 }, cuda.ErrPeerGone, "process 0"},
	{"a process below 0", func(x *ipc.Token) { x.Process.PID = -1 }, cuda.ErrPeerGone, "process -1"},
	{"an earlier process of that number", func(x *ipc.Token) { x.Process.Start-- }, cuda.ErrPeerGone, "which exported it, has ended"},
}

// wrongMemory is wrong for memory of 64 bytes, imported as uint32.
var wrongMemory = []wrongToken{
	{"no bytes", func(x *ipc.Token) { x.Size = 0 }, cuda.ErrInvalid, "0 bytes are not a number of elements of 4 bytes"},
	{"part of an element", func(x *ipc.Token) { x.Size = 6 }, cuda.ErrInvalid, "6 bytes are not a number of elements of 4 bytes"},
	{"between elements", func(x *ipc.Token) { x.Offset, x.Size = 2, 8 }, cuda.ErrInvalid, "byte 2 of the allocation is no place for elements of 4 bytes"},
	{"too large", func(x *ipc.Token) { x.Size = 68 }, cuda.ErrInvalid, "the part is of 68 bytes at 0, but the allocation has 64"},
	{"too late", func(x *ipc.Token) { x.Offset, x.Size = 4, 64 }, cuda.ErrInvalid, "64 bytes at 4, but the allocation has 64"},
	{"behind the end", func(x *ipc.Token) { x.Offset, x.Size = 64, 4 }, cuda.ErrInvalid, "4 bytes at 64"},
	{"far away", func(x *ipc.Token) { x.Offset, x.Size = 1<<63, 4 }, cuda.ErrInvalid, "the allocation has 64"},
	{"an overflow", func(x *ipc.Token) { x.Offset, x.Size = 8, ^uint64(3) }, cuda.ErrInvalid, "the allocation has 64"},
	{"everything", func(x *ipc.Token) { x.Size = ^uint64(3) }, cuda.ErrInvalid, "the allocation has 64"},
}

// refuses tries wrong tokens on b's driver, which must open nothing for good.
func refuses(t *testing.T, b *testgpu.Backend, right ipc.Token, wrong []wrongToken) {
	t.Helper()
	before := b.Driver.Stats()
	for _, w := range wrong {
		token := right
		w.change(&token)
		op, err := "cuda: event import: ", error(nil)
		if right.Kind == ipc.EventToken {
			_, err = ipc.ImportEvent(b.Driver, token, nil)
		} else {
			_, err = ipc.ImportBuffer[uint32](b.Driver, token, nil)
			op = "cuda: buffer import: "
		}
		require.ErrorIs(t, err, w.err, w.name)
		require.ErrorContains(t, err, w.text, w.name)
		require.ErrorContains(t, err, op, w.name)
		require.Equal(t, before, b.Driver.Stats(), w.name)
	}
}

func TestTokensRefused(t *testing.T) {
	testgpu.Rule(t, "31 a token in which one thing is wrong is refused with the reason", 1, func(t *testing.T, b *testgpu.Backend) {
		buf, e := testgpu.Alloc[uint32](t, b.Device(), 16), testgpu.NewSharedEvent(t, b.Device())
		refuses(t, b, exported(t, buf), append(slices.Clone(wrongTokens), wrongMemory...))
		refuses(t, b, exported(t, e), wrongTokens)
	})

	t.Run("of another process", func(t *testing.T) {
		p := newPeers(t, cudatest.Config{Devices: 2})
		buf, e := testgpu.Alloc[uint32](t, p.There.Device(), 16), p.event(t)
		other := []wrongToken{
			{"another living process", func(x *ipc.Token) { x.Process.PID = 1001 }, cuda.ErrPeerGone, "process 1001, which exported it, has ended"},
		}
		handle := func(code driver.Result, text string) []wrongToken {
			return []wrongToken{
				{"handle", func(x *ipc.Token) { x.Handle[0] ^= 1 }, code, text},
				{"end of the handle", func(x *ipc.Token) { x.Handle[63] ^= 1 }, code, text},
				{"no handle", func(x *ipc.Token) { x.Handle = [64]byte{} }, code, text},
				{"this process's name on it", func(x *ipc.Token) { x.Process, _ = p.Here.Driver.FindProcess(0) }, cuda.ErrClosed, "this process has made it"},
			}
		}
		memory := slices.Concat(wrongTokens, other, handle(driver.ErrorInvalidValue, "not of memory that exists on this machine"))
		refuses(t, p.Here, exported(t, buf), memory)
		p.ledger.requireOpens(t, 0, 0)
		refuses(t, p.Here, exported(t, buf), wrongMemory)
		p.ledger.balanced(t)
		opens := p.ledger.opens
		refuses(t, p.Here, exported(t, e), slices.Concat(wrongTokens, other, handle(driver.ErrorMapFailed, "not of an event on device 0")))
		p.ledger.requireOpens(t, opens, opens)
		require.Zero(t, p.ledger.watches())
	})

	t.Run("with another device", func(t *testing.T) {
		p := newPeers(t, cudatest.Config{Devices: 2})
		token := exported(t, p.event(t))
		wrong := token
		var err error
		wrong.Device, err = p.There.Devices[1].UUID()
		require.NoError(t, err)
		_, err = ipc.ImportEvent(p.Here.Driver, wrong, nil)
		require.ErrorIs(t, err, driver.ErrorMapFailed)
		require.ErrorContains(t, err, "not of an event on device 1 of this machine")
		require.Contains(t, fmt.Sprint(p.GPU.Problems()), "an event of another device")
		p.GPU = cudatest.New(cudatest.Config{}) // which has nothing to complain about

		ours := imported(t, p.Here, token)
		_, err = ipc.ImportEvent(p.Here.Driver, wrong, nil)
		require.ErrorIs(t, err, cuda.ErrDeviceMismatch, "it is open on the right one")
		require.ErrorContains(t, err, "opened it on device 0, and now on device 1")
		require.Same(t, p.Here.Device(), ours.Device())
	})
}

func TestTokensFromElsewhere(t *testing.T) {
	both := func(t *testing.T, p *peers, into *testgpu.Backend, want error, text string) {
		t.Helper()
		buf, e := testgpu.Alloc[byte](t, p.There.Device(), 64), p.event(t)
		before := into.Driver.Stats()
		_, err := ipc.ImportEvent(into.Driver, exported(t, e), nil)
		require.ErrorIs(t, err, want)
		require.ErrorContains(t, err, text)
		_, err = ipc.ImportBuffer[byte](into.Driver, exported(t, buf), nil)
		require.ErrorIs(t, err, want)
		require.ErrorContains(t, err, text)
		require.Equal(t, before, into.Driver.Stats())
	}
	type config = cudatest.ProcessConfig

	t.Run("another machine", func(t *testing.T) {
		p, far := newPeers(t, cudatest.Config{}), newPeers(t, cudatest.Config{})
		both(t, p, far.Here, cuda.ErrUnreachable, "comes from another machine")
		far.ledger.requireOpens(t, 0, 0)
	})
	t.Run("another PID namespace", func(t *testing.T) {
		p := newPeersWith(t, cudatest.Config{}, config{Namespace: 7}, config{})
		both(t, p, p.Here, cuda.ErrUnreachable, "isolated PID namespace (7, here 1)")
		p.ledger.requireOpens(t, 0, 0)
		h, err := p.event(t).IPCHandle()
		require.NoError(t, err)
		e, err := p.Here.Device().OpenEvent(h, nil)
		require.NoError(t, err, "a handle does not care")
		require.NoError(t, e.Close())
	})
	t.Run("the same PID namespace", func(t *testing.T) {
		p := newPeersWith(t, cudatest.Config{}, config{Namespace: 7}, config{Namespace: 7})
		_, e := p.shared(t)
		require.True(t, testgpu.Query(t, e))
	})
	t.Run("a device that is not visible", func(t *testing.T) {
		p := newPeersWith(t, cudatest.Config{Devices: 3}, config{}, config{Devices: []int{1, 2}})
		id, err := p.There.Device().UUID()
		require.NoError(t, err)
		both(t, p, p.Here, cuda.ErrNoDevice, fmt.Sprintf("it is on device %v, which this process does not see", id))
		p.ledger.requireOpens(t, 0, 0)
	})
	t.Run("devices in another order", func(t *testing.T) {
		p := newPeersWith(t, cudatest.Config{Devices: 2}, config{}, config{Devices: []int{1, 0}})
		for i, d := range p.There.Devices {
			e := imported(t, p.Here, exported(t, testgpu.NewSharedEvent(t, d)))
			require.Same(t, p.Here.Devices[1-i], e.Device())
			theirs := testgpu.Alloc[uint32](t, d, 16)
			ours := importedBuffer[uint32](t, p.Here, exported(t, theirs))
			require.Same(t, p.Here.Devices[1-i], ours.Device())
			fillNow(t, theirs, 7)
			testgpu.RequireFilled(t, testgpu.NewStream(t, ours.Device(), nil), ours, 7)
		}
	})
	t.Run("another user", func(t *testing.T) {
		p := newPeersWith(t, cudatest.Config{}, config{OtherUser: true}, config{})
		_, err := ipc.ImportEvent(p.Here.Driver, exported(t, p.event(t)), nil)
		require.ErrorIs(t, err, driver.ErrorMapFailed)
		require.ErrorContains(t, err, "another user, or of a container with another /dev/shm")
		require.Zero(t, p.ledger.watches())
		importedBuffer[byte](t, p.Here, exported(t, testgpu.Alloc[byte](t, p.There.Device(), 64)))
	})
	t.Run("a process that has ended", func(t *testing.T) {
		p := newPeers(t, cudatest.Config{})
		buf, e := testgpu.Alloc[byte](t, p.There.Device(), 64), p.event(t)
		memory, event := exported(t, buf), exported(t, e)
		p.Exporter.Kill()
		gone := func(text string) {
			t.Helper()
			_, err := ipc.ImportEvent(p.Here.Driver, event, nil)
			require.ErrorIs(t, err, cuda.ErrPeerGone)
			require.ErrorContains(t, err, text)
			_, err = ipc.ImportBuffer[byte](p.Here.Driver, memory, nil)
			require.ErrorIs(t, err, cuda.ErrPeerGone)
			require.ErrorContains(t, err, text)
		}
		text := fmt.Sprintf("process %d, which exported it, has ended", event.Process.PID)
		gone(text)
		again := testgpu.Open(t, p.GPU.NewProcessWith(config{PID: event.Process.PID}).API())
		gone(text)
		imported(t, p.Here, exported(t, testgpu.NewSharedEvent(t, again.Device())))
		gone(text)
		p.ledger.requireOpens(t, 1, 0)
		require.Equal(t, 1, p.ledger.watches())
	})
}
