package stress_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/kernels"
	"github.com/purecuda/cuda/internal/testgpu"
)

// Memory is allocated, used on other streams that are slow now and then, closed
// at once, and asked for again: no byte is ever wrong, and memory stays flat.
// PURECUDA_TEST_ROUNDS sets how often.
func TestLifetimeStress(t *testing.T) {
	skipShort(t)
	testgpu.Rule(t, "29 no wrong byte", 1, func(t *testing.T, b *testgpu.Backend) {
		times := 10_000
		if b.Real {
			times = 50_000
		}
		rounds := rounds(times)
		const workers = 4
		d := b.Device()
		module, err := d.LoadModule([]byte(kernels.PTX))
		require.NoError(t, err)
		defer func() { require.NoError(t, module.Close()) }()
		all := make([]*stress, workers)
		for i := range all {
			all[i] = newStress(t, d, module, uint64(i))
		}
		run := func(rounds int) (heap uint64) {
			var wg sync.WaitGroup
			for _, s := range all {
				wg.Go(func() {
					if err := s.run(rounds / workers); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		used := testgpu.PoolStats(t, d).Used
		before := run(rounds / 10)
		reserved := testgpu.PoolStats(t, d).Reserved
		after := run(rounds - rounds/10)
		require.NoError(t, d.Synchronize())
		require.LessOrEqual(t, after, before+4<<20, "Go's heap grows")
		now := testgpu.PoolStats(t, d)
		require.Equal(t, used, now.Used)
		require.LessOrEqual(t, now.Reserved, reserved+64<<20, "the pool grows")
		t.Logf("%d rounds by %d goroutines: no wrong byte; the pool reserves %d KiB, Go's heap went from %d to %d KiB",
			rounds, workers, now.Reserved>>10, before>>10, after>>10)
	})
}

const (
	stressSize = 512
	stressRing = 64 // rounds between two looks at the result
)

// stress is the work of one goroutine.
type stress struct {
	home        *cuda.Stream
	users       [2]*cuda.Stream
	spin, check *cuda.Kernel
	wrong       *cuda.Buffer[uint32] // how many words the device found wrong
	out         *cuda.HostBuffer[uint32]
	found       *cuda.HostBuffer[uint32]
	rand        *rand.Rand
	round       uint32
}

func newStress(t testing.TB, d *cuda.Device, module *cuda.Module, seed uint64) *stress {
	s := &stress{home: testgpu.NewStream(t, d, nil), users: [2]*cuda.Stream{testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)},
		wrong: testgpu.Alloc[uint32](t, d, 1), out: testgpu.AllocHost[uint32](t, d, stressSize*stressRing), found: testgpu.AllocHost[uint32](t, d, 1),
		rand: rand.New(rand.NewPCG(29, seed)), round: uint32(seed) << 24}
	var err error
	s.spin, err = module.Kernel("purecuda_spin")
	require.NoError(t, err)
	s.check, err = module.Kernel("purecuda_check")
	require.NoError(t, err)
	require.NoError(t, cuda.Fill(s.home, s.wrong, 0))
	require.NoError(t, s.home.Synchronize())
	return s
}

func (s *stress) run(rounds int) error {
	for rounds > 0 {
		n := min(rounds, stressRing)
		for i := range n {
			if err := s.one(i); err != nil {
				return err
			}
		}
		if err := s.look(n); err != nil {
			return err
		}
		rounds -= n
	}
	return nil
}

// one is one round: a number is written into new memory and must still be there
// when slow streams read it, though the memory was closed long before.
func (s *stress) one(i int) error {
	s.round++
	user, other := s.users[i%2], s.users[1-i%2]
	buf, err := cuda.AllocAsync[uint32](s.home, stressSize)
	if err != nil {
		return err
	}
	failed := func() error { // with what is enqueued in this round
		if err := cuda.Fill(s.home, buf, s.round); err != nil {
			return err
		}
		if err := user.WaitStream(s.home); err != nil {
			return err
		}
		if s.rand.IntN(4) == 0 {
			if err := s.spin.Launch(user, cuda.Grid1D(1, 1), uint64(s.rand.IntN(40_000))); err != nil {
				return err
			}
		}
		if i%8 < 4 {
			if err := s.check.Launch(user, cuda.Grid1D(stressSize, 128), cuda.Reads(buf), uint64(stressSize), s.round, cuda.Atomics(s.wrong)); err != nil {
				return err
			}
		}
		slot, err := s.out.Range(i*stressSize, (i+1)*stressSize)
		if err != nil {
			return err
		}
		if err := cuda.Copy(user, slot, buf); err != nil {
			return err
		}
		switch s.rand.IntN(8) {
		case 0: // joined back
			return s.home.WaitStream(user)
		case 1: // joined back, and used again by a late writer
			if err := s.home.WaitStream(user); err != nil {
				return err
			}
			return cuda.Fill(user, buf, ^s.round)
		case 2: // a writer on a third stream
			if err := other.WaitStream(user); err != nil {
				return err
			}
			return cuda.Fill(other, buf, ^s.round)
		}
		return nil
	}()
	if err := buf.Close(); err != nil {
		return err
	}
	return failed
}

// look waits for n rounds and looks at what they read.
func (s *stress) look(n int) error {
	for _, u := range s.users {
		if err := u.Synchronize(); err != nil {
			return err
		}
	}
	first := s.round - uint32(n)
	for i, v := range s.out.Slice()[:n*stressSize] {
		if want := first + 1 + uint32(i/stressSize); v != want {
			return fmt.Errorf("round %d read %d (%#x) in element %d", want, v, v, i%stressSize)
		}
	}
	if err := cuda.Copy(s.users[0], s.found, s.wrong); err != nil {
		return err
	}
	if err := s.users[0].Synchronize(); err != nil {
		return err
	}
	if wrong := s.found.Slice()[0]; wrong != 0 {
		return fmt.Errorf("the device found %d wrong words up to round %d", wrong, s.round)
	}
	return nil
}

// Streams, events and goroutines in any order: nothing races, nothing is left.
func TestLifetimeConcurrency(t *testing.T) {
	skipShort(t)
	testgpu.RuleWithRaces(t, "29 many goroutines and streams", 1, func(t *testing.T, b *testgpu.Backend) {
		d := b.Device()
		const streams, rounds = 8, 20
		users := make([]*cuda.Stream, streams)
		for i := range users {
			users[i] = testgpu.NewStream(t, d, nil)
		}
		home, host := testgpu.NewStream(t, d, nil), testgpu.AllocHost[uint32](t, d, 256)
		used := testgpu.PoolStats(t, d).Used
		for range rounds {
			buf, err := cuda.AllocAsync[uint32](home, 256)
			require.NoError(t, err)
			event := cuda.NewEvent(nil)
			for _, s := range users {
				require.NoError(t, s.WaitStream(home))
			}
			var wg sync.WaitGroup
			for i, s := range users {
				wg.Go(func() {
					for j := range 20 {
						err := cuda.Fill(s, buf, uint32(j))
						if j%3 == 0 {
							err = errors.Join(err, cuda.Copy(users[(i+1)%streams], buf, host))
						}
						if j%5 == 0 { // streams that come and go
							short, err2 := d.NewStream(nil)
							err = errors.Join(err, err2, cuda.Fill(short, buf, 1), home.WaitStream(short), short.Close())
						}
						if err != nil {
							t.Error(err)
						}
					}
				})
				wg.Go(func() {
					for range 20 {
						if err := errors.Join(event.Record(s), event.Wait(home), home.WaitStream(s), buf.RecordStream(s)); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			for range 2 {
				wg.Go(func() {
					if err := buf.Close(); err != nil {
						t.Error(err)
					}
				})
				wg.Go(func() {
					if err := cuda.Fill(users[0], buf, 1); err != nil && !errors.Is(err, cuda.ErrClosed) {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			require.NoError(t, event.Close())
		}
		require.NoError(t, d.Synchronize())
		require.Equal(t, used, testgpu.PoolStats(t, d).Used)
	})
}
