package ipc_test

import (
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
	"github.com/purecuda/cuda/ipc"
)

func TestImportClosed(t *testing.T) {
	var calls atomic.Int32
	counting := &ipc.ImportOptions{Closed: func() { calls.Add(1) }}
	open := func(t *testing.T, p *peers) (*cuda.Event, *cuda.Buffer[uint32]) {
		calls.Store(0)
		e, err := ipc.ImportEvent(p.Here.Driver, exported(t, p.event(t)), counting)
		require.NoError(t, err)
		buf, err := ipc.ImportBuffer[uint32](p.Here.Driver, exported(t, testgpu.Alloc[uint32](t, p.There.Device(), 16)), counting)
		require.NoError(t, err)
		return e, buf
	}
	want := func(t *testing.T, n int) { t.Helper(); require.EqualValues(t, n, calls.Load()) }

	t.Run("once when it is closed", func(t *testing.T) {
		e, buf := open(t, newPeers(t, cudatest.Config{}))
		part, err := buf.Range(1, 2)
		require.NoError(t, err)
		require.NoError(t, part.Close())
		want(t, 0)
		for range 3 {
			require.NoError(t, e.Close())
			want(t, 1)
		}
		for range 3 {
			require.NoError(t, buf.Close())
			want(t, 2)
		}
	})

	t.Run("each import by itself", func(t *testing.T) {
		p := newPeers(t, cudatest.Config{})
		theirs := exported(t, p.event(t))
		calls.Store(0)
		var all []*cuda.Event
		for _, opts := range []*ipc.ImportOptions{counting, nil, {}, counting} {
			e, err := ipc.ImportEvent(p.Here.Driver, theirs, opts)
			require.NoError(t, err)
			all = append(all, e)
		}
		for _, e := range all[:3] {
			require.NoError(t, e.Close())
			want(t, 1)
		}
		p.ledger.requireOpens(t, 1, 0)
		for n := range 1000 {
			e, err := ipc.ImportEvent(p.Here.Driver, theirs, counting)
			require.NoError(t, err)
			want(t, n+1)
			require.NoError(t, e.Close())
			want(t, n+2)
		}
		calls.Store(1)
		require.NoError(t, all[3].Close())
		want(t, 2)
		p.ledger.requireOpens(t, 1, 1)
		e, err := ipc.ImportEvent(p.Here.Driver, theirs, counting)
		require.NoError(t, err, "it can be opened anew")
		require.NoError(t, e.Close())
		want(t, 3)
		p.ledger.requireOpens(t, 2, 2)
	})

	t.Run("not while a graph has the memory", func(t *testing.T) {
		p := newPeers(t, cudatest.Config{})
		e, buf := open(t, p)
		require.NoError(t, e.Close())
		want(t, 1)
		s := testgpu.NewStream(t, p.Here.Device(), nil)
		g, err := s.Capture(func() error { return cuda.Fill(s, buf, 5) })
		require.NoError(t, err)
		x, err := g.Instantiate()
		require.NoError(t, err)
		require.NoError(t, buf.Close())
		require.NoError(t, g.Close())
		want(t, 1)
		require.NoError(t, x.Launch(s))
		require.NoError(t, s.Synchronize())
		p.ledger.requireOpens(t, 2, 1)
		require.NoError(t, x.Close())
		testgpu.WaitUntil(t, func() bool { return calls.Load() == 2 })
		p.ledger.requireOpens(t, 2, 2)
	})

	t.Run("not while work uses the memory", func(t *testing.T) {
		p := newPeers(t, cudatest.Config{})
		e, buf := open(t, p)
		require.NoError(t, e.Close())
		s := testgpu.NewStream(t, p.Here.Device(), nil)
		release := p.GPU.Hold(s)
		testgpu.ReleaseAtEnd(t, release)
		require.NoError(t, cuda.Fill(s, buf, 5))
		closing := testgpu.Go(buf.Close)
		testgpu.NotReady(t, closing)
		want(t, 1)
		release()
		require.NoError(t, testgpu.Receive(t, closing))
		want(t, 2)
	})

	// The driver waits for the device only with the last who closes the memory.
	for name, open := range map[string]func(t *testing.T, p *peers, token ipc.Token) (*testgpu.Backend, io.Closer){
		"as somebody else has it too": func(t *testing.T, p *peers, token ipc.Token) (*testgpu.Backend, io.Closer) {
			return p.Here, importedBuffer[uint32](t, p.Here, token)
		},
		"as somebody else has it by its handle": func(t *testing.T, p *peers, token ipc.Token) (*testgpu.Backend, io.Closer) {
			other, err := cuda.OpenBuffer[uint8](p.Here.Device(), token.Handle, nil)
			require.NoError(t, err)
			return p.Here, other
		},
		"as it is one's own": func(t *testing.T, p *peers, token ipc.Token) (*testgpu.Backend, io.Closer) {
			return p.There, importedBuffer[uint32](t, p.There, token)
		},
	} {
		t.Run("not while work uses the memory, "+name, func(t *testing.T) {
			p := newPeers(t, cudatest.Config{})
			token := exported(t, testgpu.Alloc[uint32](t, p.There.Device(), 16))
			calls.Store(0)
			b, other := open(t, p, token)
			buf, err := ipc.ImportBuffer[uint32](b.Driver, token, counting)
			require.NoError(t, err)
			s, idle := testgpu.NewStream(t, b.Device(), nil), testgpu.NewStream(t, b.Device(), nil)
			release := testgpu.Hold(t, s)
			require.NoError(t, cuda.Fill(idle, buf, 4))
			require.NoError(t, idle.Synchronize())
			require.NoError(t, cuda.Fill(s, buf, 5))
			closing := testgpu.Go(buf.Close)
			testgpu.NotReady(t, closing)
			want(t, 0)
			release()
			require.NoError(t, testgpu.Receive(t, closing))
			want(t, 1)
			require.NoError(t, other.Close())
			want(t, 1)
		})

		t.Run("not while a capture goes on, "+name, func(t *testing.T) {
			p := newPeers(t, cudatest.Config{})
			token := exported(t, testgpu.Alloc[uint32](t, p.There.Device(), 16))
			calls.Store(0)
			b, other := open(t, p, token)
			buf, err := ipc.ImportBuffer[uint32](b.Driver, token, counting)
			require.NoError(t, err)
			s := testgpu.NewStream(t, b.Device(), nil)
			require.NoError(t, cuda.Fill(s, buf, 5))
			meanwhile := int32(-1)
			g, err := s.Capture(func() error {
				err := buf.Close()
				meanwhile = calls.Load()
				return err
			})
			require.NoError(t, err, "it does not end the capture of the stream that has used it")
			require.Zero(t, meanwhile)
			testgpu.WaitUntil(t, func() bool { return calls.Load() == 1 })
			require.NoError(t, g.Close())
			require.NoError(t, other.Close())
		})
	}

	for _, pending := range []bool{false, true} {
		t.Run(fmt.Sprintf("though the device has failed, work pending: %v", pending), func(t *testing.T) {
			gpu := cudatest.New(cudatest.Config{})
			token := exported(t, testgpu.Alloc[uint32](t, testgpu.Open(t, gpu.NewProcess().API()).Device(), 16))
			drv, err := cuda.OpenDriver(gpu.NewProcess().API())
			require.NoError(t, err)
			calls.Store(0)
			var all []*cuda.Buffer[uint32]
			for range 2 {
				buf, err := ipc.ImportBuffer[uint32](drv, token, counting)
				require.NoError(t, err)
				all = append(all, buf)
			}
			s, err := all[0].Device().NewStream(nil)
			require.NoError(t, err)
			release := gpu.Hold(s)
			testgpu.ReleaseAtEnd(t, release)
			for _, buf := range all {
				require.NoError(t, cuda.Fill(s, buf, 5))
			}
			gpu.Fault(s, driver.ErrorLaunchFailed)
			if !pending {
				release()
				require.ErrorIs(t, s.Synchronize(), cuda.ErrDeviceLost)
			}
			var closing []<-chan error
			for _, buf := range all {
				closing = append(closing, testgpu.Go(buf.Close))
			}
			if pending {
				testgpu.NotReady(t, closing...)
				release()
			}
			for _, c := range closing {
				require.ErrorIs(t, testgpu.Receive(t, c), cuda.ErrDeviceLost)
			}
			want(t, 2)
		})
	}

	t.Run("not while a stream of another device uses it", func(t *testing.T) {
		p := newPeers(t, cudatest.Config{Devices: 2})
		e, buf := open(t, p)
		require.NoError(t, e.Close())
		want(t, 1)
		far := p.Here.Devices[1]
		s, to := testgpu.NewStream(t, far, nil), testgpu.Alloc[uint32](t, far, 16)
		release := p.GPU.Hold(s)
		testgpu.ReleaseAtEnd(t, release)
		require.NoError(t, cuda.Copy(s, to, buf))
		closing := testgpu.Go(buf.Close)
		testgpu.NotReady(t, closing)
		want(t, 1)
		release()
		require.NoError(t, testgpu.Receive(t, closing))
		want(t, 2)
	})

	t.Run("not while a call is in flight", func(t *testing.T) {
		p := newPeers(t, cudatest.Config{})
		theirs := p.event(t)
		v := &testgpu.Valve{}
		b := testgpu.Modified(t, p.Here, v.Install)
		calls.Store(0)
		e, err := ipc.ImportEvent(b.Driver, exported(t, theirs), counting)
		require.NoError(t, err)
		pass := v.Close(t, testgpu.Queries, testgpu.AnyEvent)
		asked := testgpu.Go(func() error { _, err := e.Query(); return err })
		testgpu.WaitUntil(t, func() bool { return v.Stopped.Load() == 1 })
		require.NoError(t, e.Close())
		want(t, 0)
		pass()
		require.ErrorIs(t, testgpu.Receive(t, asked), cuda.ErrClosed)
		testgpu.WaitUntil(t, func() bool { return calls.Load() == 1 })
	})

	t.Run("of this process's own", func(t *testing.T) {
		p := newPeers(t, cudatest.Config{})
		theirs, buf := p.event(t), testgpu.Alloc[uint32](t, p.There.Device(), 16)
		calls.Store(0)
		e, err := ipc.ImportEvent(p.There.Driver, exported(t, theirs), counting)
		require.NoError(t, err)
		words, err := ipc.ImportBuffer[uint32](p.There.Driver, exported(t, buf), counting)
		require.NoError(t, err)
		require.NoError(t, theirs.Close())
		require.NoError(t, buf.Close())
		want(t, 0)
		for range 2 {
			require.NoError(t, e.Close())
			want(t, 1)
		}
		for range 2 {
			require.NoError(t, words.Close())
			want(t, 2)
		}
	})

	t.Run("not if the import failed", func(t *testing.T) {
		p := newPeers(t, cudatest.Config{})
		token := exported(t, testgpu.Alloc[uint32](t, p.There.Device(), 16))
		calls.Store(0)
		for _, w := range wrongMemory {
			wrong := token
			w.change(&wrong)
			_, err := ipc.ImportBuffer[uint32](p.Here.Driver, wrong, counting)
			require.Error(t, err)
			want(t, 0)
		}
		importedBuffer[uint32](t, p.Here, token)
		p.ledger.requireOpens(t, p.ledger.closes+1, p.ledger.closes)
	})
}

// What was imported and forgotten is closed, and its exporter watched no more.
func TestForgottenImports(t *testing.T) {
	p := newPeers(t, cudatest.Config{})
	event, memory := exported(t, p.event(t)), exported(t, testgpu.Alloc[uint32](t, p.There.Device(), 16))
	api, l := *p.GPU.NewProcess().API(), &ledger{open: map[uint64]int{}}
	l.install(&api)
	drv, err := cuda.OpenDriver(&api)
	require.NoError(t, err)
	var calls atomic.Int32
	opts := &ipc.ImportOptions{Closed: func() { calls.Add(1) }}
	for range 3 {
		_, err = ipc.ImportEvent(drv, event, opts)
		require.NoError(t, err)
		_, err = ipc.ImportBuffer[uint32](drv, memory, opts)
		require.NoError(t, err)
	}
	require.Equal(t, 1, l.watches())
	testgpu.CollectUntil(t, func() bool { return calls.Load() == 6 })
	testgpu.WaitUntil(t, func() bool { return drv.Stats() == cuda.Stats{Forgotten: 6} })
	l.requireOpens(t, 2, 2)
	testgpu.WaitUntil(t, func() bool { return l.watches() == 0 })
}
