package ipc

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/testgpu"
)

// sendRaw sends a message of the first ring, "r", as an end of it would.
func (e *end) sendRaw(t testing.TB, m ringMessage, producer bool) {
	t.Helper()
	m.Ring, m.Producer = 1, producer
	if m.Setup != nil {
		m.Name = "r"
	}
	payload, err := json.Marshal(m)
	require.NoError(t, err)
	require.NoError(t, e.sendTo(ringsChannel, payload, m.file))
}

// hostileMemory is the name under which the first ring's memory is offered.
const hostileMemory = "ring 1: r"

// A consumer refuses what cannot be, whatever comes with it.
func TestRingHostileSetup(t *testing.T) {
	sealed := func(n int) func(t *testing.T) *os.File {
		return func(t *testing.T) *os.File {
			f, err := newSharedFile(n)
			require.NoError(t, err)
			return f
		}
	}
	unsealed := func(t *testing.T) *os.File {
		name := []byte("unsealed\x00")
		fd, _, errno := syscall.Syscall(memfdCreate, uintptr(unsafe.Pointer(&name[0])), memfdCloexec|memfdAllowSealing, 0)
		require.Zero(t, errno)
		f := os.NewFile(fd, "unsealed")
		require.NoError(t, f.Truncate(int64(countersSize(2))))
		return f
	}
	plain := func(t *testing.T) *os.File {
		f, err := os.Create(filepath.Join(t.TempDir(), "f"))
		require.NoError(t, err)
		require.NoError(t, f.Truncate(int64(countersSize(2))))
		return f
	}
	none := func(*testing.T) *os.File { return nil }
	for _, test := range []struct {
		name    string
		setup   ringSetup
		file    func(t *testing.T) *os.File
		offered int // elements
		says    string
	}{
		{"no slots", ringSetup{Slots: 0, Length: 4, Element: 4}, none, 8, "slots"},
		{"fewer", ringSetup{Slots: -1, Length: 4, Element: 4}, none, 8, "slots"},
		{"very many slots", ringSetup{Slots: 1e9, Length: 4, Element: 4}, none, 8, "slots"},
		{"no length", ringSetup{Slots: 2, Length: 0, Element: 4}, none, 8, "elements"},
		{"negative length", ringSetup{Slots: 2, Length: -4, Element: 4}, none, 8, "elements"},
		{"overflow", ringSetup{Slots: 2, Length: math.MaxInt/2 + 3, Element: 4}, none, 8, "elements"},
		{"overflow to what is offered", ringSetup{Slots: 4, Length: math.MinInt/2 + 2, Element: 4}, none, 8, "elements"},
		{"other elements", ringSetup{Slots: 2, Length: 4, Element: 8}, none, 8, "bytes"},
		{"less memory", ringSetup{Slots: 2, Length: 4, Element: 4}, none, 7, "another size"},
		{"more memory", ringSetup{Slots: 2, Length: 4, Element: 4}, none, 9, "another size"},
		{"an unsealed file", ringSetup{Slots: 2, Length: 4, Element: 4, Counters: true}, unsealed, 8, "sealed"},
		{"a plain file", ringSetup{Slots: 2, Length: 4, Element: 4, Counters: true}, plain, 8, "sealed"},
		{"a small file", ringSetup{Slots: 2, Length: 4, Element: 4, Counters: true}, sealed(countersSize(2) - 1), 8, "fewer than"},
		{"an empty file", ringSetup{Slots: 2, Length: 4, Element: 4, Counters: true}, sealed(0), 8, "fewer than"},
		{"a file for fewer slots", ringSetup{Slots: 1024, Length: 1, Element: 4, Counters: true}, sealed(countersSize(2)), 1024, "fewer than"},
		{"a directory", ringSetup{Slots: 2, Length: 4, Element: 4, Counters: true}, func(t *testing.T) *os.File {
			f, err := os.Open(t.TempDir())
			require.NoError(t, err)
			return f
		}, 8, "sealed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := newDuo(t)
			x, err := cuda.Alloc[uint32](d.a.dev, test.offered)
			require.NoError(t, err)
			require.NoError(t, d.a.offerNamed(hostileMemory, x))
			require.NoError(t, x.Close())
			f := test.file(t)
			d.a.sendRaw(t, ringMessage{Setup: &test.setup, file: f}, true)
			if f != nil {
				require.NoError(t, f.Close())
			}
			_, err = NewConsumer[uint32](within(t, 5*time.Second), d.b.Session, d.b.drv, "r")
			require.ErrorIs(t, err, cuda.ErrInvalid)
			require.ErrorContains(t, err, test.says)
			freed(t, &duo{a: d.b, b: d.b})
			require.Zero(t, d.b.drv.Stats().HostBuffers)
		})
	}
}

// Counters without a file are none: the consumer takes events, of which the peer has
// nothing to say.
func TestRingHostileCountersWithoutFile(t *testing.T) {
	d := newDuo(t)
	x, err := cuda.Alloc[uint32](d.a.dev, 8)
	require.NoError(t, err)
	require.NoError(t, d.a.offerNamed(hostileMemory, x))
	require.NoError(t, x.Close())
	d.a.sendRaw(t, ringMessage{Setup: &ringSetup{Slots: 2, Length: 4, Element: 4, Counters: true}}, true)
	made := testgpu.Go(func() error {
		_, err := NewConsumer[uint32](within(t, 5*time.Second), d.b.Session, d.b.drv, "r")
		return err
	})
	testgpu.WaitUntil(t, func() bool { // before, what is said of the ring is for nobody
		d.b.rings.mu.Lock()
		defer d.b.rings.mu.Unlock()
		return len(d.b.rings.open) == 1
	})
	d.a.sendRaw(t, ringMessage{Ready: &ringReady{Counters: true}}, true)
	require.ErrorIs(t, testgpu.Receive(t, made), cuda.ErrInvalid)
}

func TestRingHostileAnswers(t *testing.T) {
	for name, m := range map[string]ringMessage{
		"nothing":     {},
		"a signal":    {Signal: &ringSignal{}},
		"its own end": {End: new(uint64)},
		"closed":      {Closed: true},
		"refused":     {Ready: &ringReady{Error: "a reason"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDuo(t)
			made := testgpu.Go(func() error {
				_, err := NewProducer[uint32](within(t, 5*time.Second), d.a.Session, d.a.dev, "r", 2, 4)
				return err
			})
			testgpu.WaitUntil(t, func() bool {
				d.b.mu.Lock()
				defer d.b.mu.Unlock()
				return d.b.remotes[hostileMemory] != nil
			})
			d.b.sendRaw(t, m, false)
			err := testgpu.Receive(t, made)
			require.Error(t, err)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			if name == "refused" {
				require.ErrorContains(t, err, "a reason")
			}
			testgpu.WaitUntil(t, func() bool { return d.a.drv.Stats() == cuda.Stats{Streams: 1} })
		})
	}
}

// Messages at wrong times, and files with them, change nothing.
func TestRingHostileMessages(t *testing.T) {
	test := func(t *testing.T, d *duo) {
		p, c := d.ring(t, 2, 4)
		n := uint64(3)
		f, err := newSharedFile(1)
		require.NoError(t, err)
		defer f.Close()
		for _, m := range []ringMessage{
			{},
			{Setup: &ringSetup{Slots: 1, Length: 1, Element: 4}, file: f},
			{Ready: &ringReady{Error: "no"}},
			{Event: &ringEvent{Slot: -1, Token: Token{Kind: EventToken}}},
			{Signal: &ringSignal{Slot: 2, Round: 1}},
			{Signal: &ringSignal{Slot: -1, Round: 1}},
			{Signal: &ringSignal{Slot: math.MaxInt, Round: math.MaxUint64}},
			{Signal: &ringSignal{Slot: 0, Round: 7}},
			{file: f},
		} {
			for _, producer := range []bool{false, true} {
				d.a.sendRaw(t, m, producer)
				d.b.sendRaw(t, m, producer)
			}
		}
		d.b.sendRaw(t, ringMessage{End: &n}, false) // only a producer says that
		require.NoError(t, d.a.sendTo(ringsChannel, []byte(`[1, "a"]`), nil))
		require.NoError(t, d.b.sendTo(ringsChannel, []byte(`{"end": -1}`), nil))
		for n := range uint32(10) {
			send(t, p, d.a.stream, n)
			take(t, c, d.b.stream).has(t, n)
		}
		require.NoError(t, p.Flush(within(t, 5*time.Second)))
		require.NoError(t, p.Close())
		ends(t, c, d.b.stream, 0)
	}
	t.Run("counters", func(t *testing.T) { test(t, newDuo(t)) })
	t.Run("events", func(t *testing.T) { test(t, newDuo(t, noCounters)) })
}

// The end is said twice: the first counts. An end that never comes is no end.
func TestRingHostileEnd(t *testing.T) {
	for _, second := range []uint64{0, 1, 5, math.MaxUint64} {
		t.Run(fmt.Sprint("twice, ", second), func(t *testing.T) {
			d := newDuo(t)
			p, c := d.ring(t, 3, 4)
			for n := range uint32(2) {
				send(t, p, d.a.stream, n)
			}
			first := uint64(2)
			d.a.sendRaw(t, ringMessage{End: &first}, true)
			d.a.sendRaw(t, ringMessage{End: &second}, true)
			ends(t, c, d.b.stream, 2)
		})
	}
	for _, n := range []uint64{3, 100, 1 << 31, 1<<32 + 2, 1 << 33, math.MaxUint64} {
		t.Run(fmt.Sprint("of more than there are, ", n), func(t *testing.T) {
			d := newDuo(t)
			p, c := d.ring(t, 1, 4)
			for n := range uint32(2) {
				send(t, p, d.a.stream, n)
				take(t, c, d.b.stream).has(t, n)
			}
			d.a.sendRaw(t, ringMessage{End: &n}, true)
			x, err := c.Next(within(t, testgpu.Soon), d.b.stream)
			if err == nil { // it is not heard yet, or is possible
				require.NoError(t, x.Release(d.b.stream))
				time.Sleep(testgpu.Soon)
				require.Error(t, x.Confirm(within(t, testgpu.Soon)), "it never came")
				d.kill(d.a)
				require.Error(t, x.Confirm(within(t, 5*time.Second)))
			}
			d.b.runs(t)
			require.NoError(t, finishes(t, c.Close))
			_ = p.Close()
		})
	}
}

// A peer that writes any words only spoils its own batches.
func TestRingHostileCounters(t *testing.T) {
	for _, v := range []uint32{0, 1, 1 << 30, 1<<31 - 1, 1 << 31, math.MaxUint32} {
		t.Run(fmt.Sprintf("%#x", v), func(t *testing.T) {
			d := newDuo(t)
			p, c := d.ring(t, 2, 4)
			for n := range uint32(4) {
				send(t, p, d.a.stream, n)
				take(t, c, d.b.stream).has(t, n)
			}
			require.NoError(t, p.Flush(within(t, 5*time.Second)))
			for _, r := range []*ring{p.ring, c.ring} {
				for i := range r.gate.(*counters).slots {
					atomic.StoreUint32(r.gate.(*counters).slots[i].word, v)
				}
			}
			for range 4 { // whatever comes of it, nothing blocks longer than it may
				if b, err := c.Next(within(t, testgpu.Soon), d.b.stream); err == nil {
					_ = b.Release(d.b.stream)
					_ = b.Confirm(within(t, testgpu.Soon))
				}
				if s, err := p.Next(within(t, testgpu.Soon), d.a.stream); err == nil {
					_ = s.Send(d.a.stream)
				}
			}
			_ = p.Flush(within(t, testgpu.Soon))
			require.NoError(t, p.Close())
			require.NoError(t, finishes(t, c.Close))
			d.b.runs(t)
			d.a.runs(t)
			freed(t, d)
		})
	}
}
