package ipc_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
	"github.com/purecuda/cuda/ipc"
)

// openByMany opens from many goroutines at once, and then closes from all of them.
func openByMany(t *testing.T, n int, open func() (interface{ Close() error }, error), between func()) {
	t.Helper()
	var opening, closing sync.WaitGroup
	start, leave := make(chan struct{}), make(chan struct{})
	opening.Add(n)
	for range n {
		closing.Go(func() {
			<-start
			x, err := open()
			opening.Done()
			<-leave
			if err == nil {
				err = x.Close()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	opening.Wait()
	between()
	close(leave)
	closing.Wait()
}

const openers = 1000

func TestOpenedByMany(t *testing.T) {
	p := newPeers(t, cudatest.Config{})
	event, memory := exported(t, p.event(t)), exported(t, testgpu.Alloc[uint32](t, p.There.Device(), 16))
	manyOpenOnce(t, p.Here, p.ledger, event, memory)
	require.Zero(t, p.ledger.watches())
	require.Equal(t, 1, p.ledger.ever, "watched once")

	testgpu.Rule(t, "33 one's own from many goroutines", 1, func(t *testing.T, b *testgpu.Backend) {
		var ledger ledger
		ledger.open = map[uint64]int{}
		b = testgpu.Modified(t, b, ledger.install)
		e, buf := testgpu.NewSharedEvent(t, b.Device()), testgpu.Alloc[uint32](t, b.Device(), 16)
		event, memory := exported(t, e), exported(t, buf)
		for _, open := range manners(b, event, memory) {
			openByMany(t, openers, open, func() {})
		}
		ledger.requireOpens(t, 0, 0)
		require.Equal(t, testgpu.NativeEvent(t, e), testgpu.NativeEvent(t, imported(t, b, event)))
	})
}

// manners are the ways to open something of another process.
func manners(b *testgpu.Backend, event, memory ipc.Token) map[string]func() (interface{ Close() error }, error) {
	return map[string]func() (interface{ Close() error }, error){
		"ImportEvent":  func() (interface{ Close() error }, error) { return ipc.ImportEvent(b.Driver, event, nil) },
		"OpenEvent":    func() (interface{ Close() error }, error) { return b.Device().OpenEvent(event.Handle, nil) },
		"ImportBuffer": func() (interface{ Close() error }, error) { return ipc.ImportBuffer[uint32](b.Driver, memory, nil) },
		"OpenBuffer": func() (interface{ Close() error }, error) {
			return cuda.OpenBuffer[uint8](b.Device(), memory.Handle, nil)
		},
	}
}

// manyOpenOnce wants the driver to open once, and to close once, what many open.
func manyOpenOnce(t *testing.T, b *testgpu.Backend, l *ledger, event, memory ipc.Token) {
	t.Helper()
	for name, open := range manners(b, event, memory) {
		opens, closes := l.opens, l.closes
		openByMany(t, openers, open, func() { l.requireOpens(t, opens+1, closes) })
		l.requireOpens(t, opens+1, closes+1)
		require.False(t, t.Failed(), name)
	}
}

// Opening, using and closing at once from many goroutines: each use works, and all is
// closed at the end.
func TestOpenAndCloseRaces(t *testing.T) {
	p := newPeers(t, cudatest.Config{})
	buf := testgpu.Alloc[uint32](t, p.There.Device(), 16)
	fillNow(t, buf, 7)
	openAndClose(t, p.Here, p.ledger, exported(t, p.event(t)), exported(t, buf), 200)
	require.Zero(t, p.ledger.watches())
}

// openAndClose wants memory that is full of 7.
func openAndClose(t *testing.T, b *testgpu.Backend, l *ledger, event, memory ipc.Token, n int) {
	t.Helper()
	var closed, imports atomic.Int64
	opts := &ipc.ImportOptions{Closed: func() { closed.Add(1) }}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			s, err := b.Device().NewStream(nil)
			if err != nil {
				t.Error(err)
				return
			}
			for range n {
				e, err := ipc.ImportEvent(b.Driver, event, opts)
				words, err2 := ipc.ImportBuffer[uint32](b.Driver, memory, opts)
				bytes, err3 := cuda.OpenBuffer[uint8](b.Device(), memory.Handle, nil)
				if err := errors.Join(err, err2, err3); err != nil {
					t.Error(err)
					return
				}
				imports.Add(2)
				out := make([]uint32, 16)
				_, err = e.Query()
				err = errors.Join(err, e.Wait(s), e.Synchronize(), cuda.CopyToSlice(context.Background(), s, out, words))
				if out[15] != 7 {
					err = errors.Join(err, errors.New("the memory is another"))
				}
				closers := []func() error{e.Close, words.Close, bytes.Close}
				rand.Shuffle(3, func(i, j int) { closers[i], closers[j] = closers[j], closers[i] })
				for _, f := range closers {
					err = errors.Join(err, f())
				}
				if err != nil {
					t.Error(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	l.balanced(t)
	require.Equal(t, imports.Load(), closed.Load())
}

// One object, closed while others use it and open it again.
func TestCloseRacesWithUse(t *testing.T) {
	p := newPeers(t, cudatest.Config{})
	event, memory := exported(t, p.event(t)), exported(t, testgpu.Alloc[uint32](t, p.There.Device(), 16))
	s := testgpu.NewStream(t, p.Here.Device(), nil)
	for range 100 {
		e, err := ipc.ImportEvent(p.Here.Driver, event, nil)
		require.NoError(t, err)
		words, err := ipc.ImportBuffer[uint32](p.Here.Driver, memory, nil)
		require.NoError(t, err)
		var wg sync.WaitGroup
		for _, f := range []func() error{
			e.Close, words.Close,
			func() error { return e.Wait(s) },
			e.Synchronize,
			func() error { return e.WaitAlive(context.Background(), s) },
			func() error { return <-e.Done() },
			func() error { _, err := ipc.ExportEvent(e); return err },
			func() error { return cuda.Fill(s, words, 1) },
			func() error { _, err := words.IPCHandle(); return err },
			func() error { x, err := ipc.ImportEvent(p.Here.Driver, event, nil); return errors.Join(err, x.Close()) },
			func() error {
				x, err := ipc.ImportBuffer[uint32](p.Here.Driver, memory, nil)
				return errors.Join(err, x.Close())
			},
		} {
			wg.Go(func() {
				if err := f(); err != nil && !errors.Is(err, cuda.ErrClosed) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.NoError(t, s.Synchronize())
	}
	testgpu.WaitUntil(t, func() bool { return p.ledger.watches() == 0 })
	p.ledger.balanced(t)
}

// One's own event and memory, closed while others open them by their handles.
func TestOwnCloseRaces(t *testing.T) {
	testgpu.Rule(t, "33 closing while others open", 1, func(t *testing.T, b *testgpu.Backend) {
		b, calls := testgpu.Counted(t, b, nil)
		s := testgpu.NewStream(t, b.Device(), nil)
		for range 25 {
			e := cuda.NewEvent(&cuda.EventOptions{Interprocess: true, Device: b.Device()})
			buf, err := cuda.Alloc[uint32](b.Device(), 16)
			require.NoError(t, err)
			event, memory := exported(t, e), exported(t, buf)
			made, freed := calls.Count("EventDestroy"), calls.Count("MemFree")
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					x, err := ipc.ImportEvent(b.Driver, event, nil)
					if err == nil {
						_, asked := x.Query()
						err = errors.Join(asked, x.Record(s), x.Close())
					} else if errors.Is(err, cuda.ErrClosed) {
						err = nil
					}
					words, err2 := ipc.ImportBuffer[uint32](b.Driver, memory, nil)
					if err2 == nil {
						err2 = errors.Join(cuda.Fill(s, words, 1), words.Close())
					} else if errors.Is(err2, cuda.ErrClosed) {
						err2 = nil
					}
					if err := errors.Join(err, err2); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Go(func() {
				if err := errors.Join(e.Close(), buf.Close()); err != nil {
					t.Error(err)
				}
			})
			wg.Wait()
			require.NoError(t, s.Synchronize())
			require.Equal(t, freed+1, calls.Count("MemFree"))
			testgpu.CollectUntil(t, func() bool { return calls.Count("EventDestroy") == made+1 })
		}
	})
}

// The exporter dies while others import from it and wait.
func TestDeathRacesWithImports(t *testing.T) {
	gpu := cudatest.New(cudatest.Config{})
	here, ledger := kept(t, gpu.NewProcess().API())
	u := testgpu.NewStream(t, here.Device(), nil)
	for range 50 {
		victim := gpu.NewProcess()
		drv, err := cuda.OpenDriver(victim.API())
		require.NoError(t, err)
		d, err := drv.OpenDevice(0)
		require.NoError(t, err)
		e, err := d.NewStream(nil)
		require.NoError(t, err)
		gpu.Hold(e)
		theirs := cuda.NewEvent(&cuda.EventOptions{Interprocess: true, Device: d})
		require.NoError(t, theirs.Record(e))
		buf, err := cuda.Alloc[uint32](d, 16)
		require.NoError(t, err)
		event, memory := exported(t, theirs), exported(t, buf)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				ours, err := ipc.ImportEvent(here.Driver, event, nil)
				if err == nil {
					err = []func() error{
						ours.Synchronize,
						func() error { return <-ours.Done() },
						func() error { return cuda.WaitAll(context.Background(), ours) },
						func() error { return ours.WaitAlive(context.Background(), u) },
					}[i%4]()
					if err == nil {
						t.Error("a wait for what was never done ended well")
					}
					if err := ours.Close(); err != nil {
						t.Error(err)
					}
				}
				if !errors.Is(err, cuda.ErrPeerGone) {
					t.Error(err)
				}
				if words, err := ipc.ImportBuffer[uint32](here.Driver, memory, nil); err == nil {
					err = errors.Join(cuda.Fill(u, words, 1), words.Close())
					if err != nil {
						t.Error(err)
					}
				} else if !errors.Is(err, cuda.ErrPeerGone) && !errors.Is(err, driver.ErrorInvalidValue) {
					t.Error(err)
				}
			})
		}
		wg.Go(victim.Kill)
		wg.Wait()
		require.Zero(t, ledger.watches())
		ledger.balanced(t)
	}
}
