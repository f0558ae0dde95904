package cudatest

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

const shared = driver.EventInterprocess | driver.EventDisableTiming

// peers runs f with two processes in virtual time.
func peers(t *testing.T, f func(exporter, importer *bed, p *Process)) {
	bubble(t, func(b *bed) {
		p := b.gpu.NewProcess()
		f(newBedOn(b.t, b.gpu, p.API()), b, p)
	})
}

// send exports an event and opens it in the other process.
func send(from, to *bed, e driver.Event) (opened driver.Event) {
	from.on(0, func() {
		h, r := from.IPCGetEventHandle(e)
		from.ok(r)
		to.on(0, func() {
			opened, r = to.IPCOpenEventHandle(h)
			to.ok(r)
		})
	})
	return opened
}

func TestEventsBetweenProcesses(t *testing.T) {
	peers(t, func(a, b *bed, _ *Process) {
		s, u := a.stream(0, driver.StreamNonBlocking), b.stream(0, driver.StreamNonBlocking)
		e := a.event(0, shared)
		opened := send(a, b, e) // before any record
		b.ok(b.EventQuery(opened))
		a.gpu.Run(Handle(s), 300*ms)
		a.ok(a.EventRecord(e, s))
		require.Equal(t, driver.ErrorNotReady, b.EventQuery(opened))
		b.ok(b.StreamWaitEvent(u, opened, 0))
		require.Equal(t, 300*ms, took(func() { b.ok(b.StreamSynchronize(u)) }))

		b.gpu.Run(Handle(u), 5*ms)
		b.ok(b.EventRecord(opened, u))
		require.Equal(t, driver.ErrorNotReady, a.EventQuery(e), "recorded by the importer")
		require.Equal(t, 5*ms, took(func() { a.ok(a.EventSynchronize(e)) }))

		_, r := b.EventElapsedTime(opened, opened)
		require.Equal(t, driver.ErrorInvalidHandle, r)
		require.Equal(t, driver.ErrorInvalidHandle, b.EventQuery(e), "the other process's handle")
		a.on(0, func() {
			h, r := a.IPCGetEventHandle(e)
			a.ok(r)
			_, r = a.IPCOpenEventHandle(h)
			require.Equal(t, driver.ErrorInvalidContext, r)
			_, r = a.IPCGetEventHandle(a.event(0, driver.EventDisableTiming))
			require.Equal(t, driver.ErrorInvalidHandle, r)
			_, r = a.IPCOpenEventHandle(driver.IPCEventHandle{1, 2, 3})
			require.Equal(t, driver.ErrorMapFailed, r)
			a.ok(a.EventDestroy(e))
			b.on(0, func() {
				_, r = b.IPCOpenEventHandle(h)
				require.Equal(t, driver.ErrorMapFailed, r)
			})
		})
	})
}

func TestMemoryBetweenProcesses(t *testing.T) {
	peers(t, func(a, b *bed, _ *Process) {
		s, p, h := a.stream(0, driver.StreamNonBlocking), a.mem(0, 64), b.pinned(64)
		u := b.stream(0, driver.StreamNonBlocking)
		a.ok(a.MemsetD8Async(p, 7, 64, s))
		a.ok(a.StreamSynchronize(s))
		var handle driver.IPCMemHandle
		a.on(0, func() {
			var r driver.Result
			handle, r = a.IPCGetMemHandle(p + 8)
			a.ok(r)
			_, r = a.IPCOpenMemHandle(handle, 0)
			require.Equal(t, driver.ErrorInvalidContext, r)
			_, r = a.IPCGetMemHandle(driver.HostPtr(at(a.pinned(64))))
			require.Equal(t, driver.ErrorInvalidValue, r)
		})
		b.on(0, func() {
			_, r := b.IPCOpenMemHandle(driver.IPCMemHandle{1}, 0)
			require.Equal(t, driver.ErrorInvalidValue, r)
			q, r := b.IPCOpenMemHandle(handle, driver.IPCMemLazyEnablePeerAccess)
			b.ok(r)
			again, r := b.IPCOpenMemHandle(handle, 0)
			b.ok(r)
			require.Equal(t, q, again)
			require.NotEqual(t, p, q)
			b.ok(b.MemcpyDtoHAsync(at(h), q, 64, u))
			b.ok(b.StreamSynchronize(u))
			require.Equal(t, bytes.Repeat([]byte{7}, 64), h)
			require.Equal(t, driver.ErrorInvalidValue, b.MemcpyDtoHAsync(at(h), p, 64, u), "the other process's address")
			require.Equal(t, driver.ErrorInvalidValue, b.MemFree(q))
			b.ok(b.IPCCloseMemHandle(q))
			b.ok(b.IPCCloseMemHandle(q))
			require.Equal(t, driver.ErrorInvalidValue, b.IPCCloseMemHandle(q))
		})
		a.ok(free(a, p))
	})
}

func TestKill(t *testing.T) {
	peers(t, func(a, b *bed, p *Process) {
		s, e, idle := a.stream(0, driver.StreamNonBlocking), a.event(0, shared), a.event(0, shared)
		u, free := b.stream(0, driver.StreamNonBlocking), b.stream(0, driver.StreamNonBlocking)
		opened, calm := send(a, b, e), send(a, b, idle)
		a.ok(a.EventRecord(idle, s))
		a.gpu.Run(Handle(s), 5*ms)
		a.ok(a.EventRecord(e, s))
		b.ok(b.StreamWaitEvent(u, opened, 0))
		b.gpu.Run(Handle(u), ms)
		b.gpu.Run(Handle(free), 10*ms)
		word := driver.HostPtr(at(b.pinned(4))) // poisoned, so neither is 1
		looks, will := b.stream(0, driver.StreamNonBlocking), b.stream(0, driver.StreamNonBlocking)
		b.ok(b.StreamWaitValue32(looks, word, 1, driver.StreamWaitValueEQ))
		b.gpu.Run(Handle(will), 2*ms)
		b.ok(b.StreamWaitValue32(will, word, 1, driver.StreamWaitValueEQ))
		waiting := make(chan struct{})
		go func() {
			b.EventSynchronize(opened)
			close(waiting)
		}()
		time.Sleep(ms)
		p.Kill()
		require.Equal(t, driver.ErrorDeinitialized, a.StreamQuery(s))
		require.Equal(t, driver.ErrorDeinitialized, a.Init(0))
		time.Sleep(time.Hour)
		require.Equal(t, driver.ErrorNotReady, b.EventQuery(opened))
		require.Equal(t, driver.ErrorNotReady, b.StreamQuery(u))
		b.ok(b.EventQuery(calm))
		b.ok(b.StreamQuery(free))
		require.Equal(t, driver.ErrorNotReady, b.StreamQuery(looks))
		b.ok(b.StreamWriteValue32(free, word, 1, 0))
		b.ok(b.StreamQuery(looks))
		b.ok(b.StreamQuery(will))
		b.ok(b.EventRecord(opened, free))
		require.Equal(t, driver.ErrorNotReady, b.StreamQuery(free), "recording it gets stuck too")
		select {
		case <-waiting:
			t.Error("the wait ended")
		default:
		}
		b.ok(b.EventDestroy(opened))
		b.ok(b.StreamDestroy(u))
		b.ok(b.StreamDestroy(free))

		// End the wait: a bubble must not end with blocked goroutines.
		b.gpu.Fault(b.gpu.Default(0), driver.ErrorLaunchFailed)
		synctest.Wait()
		<-waiting
	})
}

func TestFault(t *testing.T) {
	bubble(t, func(b *bed) {
		s, u, far := b.stream(0, driver.StreamNonBlocking), b.stream(0, driver.StreamNonBlocking), b.stream(1, driver.StreamNonBlocking)
		e, behind, p := b.event(0, 0), b.event(0, 0), b.mem(0, 8)
		b.gpu.Run(Handle(u), time.Hour)
		b.ok(b.EventRecord(behind, u))
		b.gpu.Run(Handle(s), 5*ms)
		b.gpu.Fault(Handle(s), driver.ErrorLaunchFailed)
		b.ok(b.EventRecord(e, s))
		h := b.pinned(1)
		b.ok(b.MemsetD8Async(driver.HostPtr(at(h)), 1, 1, s))
		require.Equal(t, driver.ErrorNotReady, b.EventQuery(e), "not reached yet")
		require.Equal(t, 5*ms, took(func() { require.Equal(t, driver.ErrorLaunchFailed, b.EventSynchronize(behind)) }))
		b.on(0, func() {
			_, created := b.EventCreate(0)
			_, flags := b.StreamGetFlags(u)
			_, capturing := b.StreamIsCapturing(u)
			_, captured := b.StreamEndCapture(u)
			for i, r := range []driver.Result{
				b.EventQuery(e), b.EventRecord(e, u), b.StreamQuery(u), b.StreamSynchronize(s), b.StreamWaitEvent(u, e, 0), b.StreamWaitEvent(far, e, 0),
				b.CtxSynchronize(), b.MemsetD8Async(p, 0, 1, u), b.MemFree(p), created, flags, capturing, captured, b.EventDestroy(e), b.StreamDestroy(s),
			} {
				require.Equal(t, driver.ErrorLaunchFailed, r, i)
			}
		})
		require.EqualValues(t, Poison, h[0], "what stood behind the fault had no effect")
		b.ok(b.StreamQuery(far))
		_, r := b.DevicePrimaryCtxRetain(0)
		b.ok(r)
		b.ok(b.DevicePrimaryCtxRelease(0))
		b.ok(b.DevicePrimaryCtxRelease(0))
		_, r = b.DevicePrimaryCtxRetain(0)
		require.Equal(t, driver.ErrorLaunchFailed, r, "only a new process helps")
		_, r = newBedOn(t, b.gpu, b.gpu.NewProcess().API()).DevicePrimaryCtxRetain(0)
		b.ok(r)
	})
}

func TestFaultEndsWaits(t *testing.T) {
	bubble(t, func(b *bed) {
		busy, held, s := b.stream(0, driver.StreamNonBlocking), b.stream(0, driver.StreamNonBlocking), b.stream(0, driver.StreamNonBlocking)
		b.gpu.Run(Handle(busy), time.Hour)
		b.gpu.Hold(Handle(held))
		answers := make(chan driver.Result, 2)
		for _, waited := range []driver.Stream{busy, held} {
			go func() { answers <- b.StreamSynchronize(waited) }()
		}
		synctest.Wait()
		b.gpu.Run(Handle(s), 5*ms)
		b.gpu.Fault(Handle(s), driver.ErrorLaunchFailed)
		time.Sleep(5 * ms)
		synctest.Wait()
		require.Len(t, answers, 2, "both waits ended with the fault")
		require.Equal(t, driver.ErrorLaunchFailed, <-answers)
		require.Equal(t, driver.ErrorLaunchFailed, <-answers)
	})
}
