package cudatest

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

// Handles of a killed process's events still mean something.
func TestEventsOutliveTheirProcess(t *testing.T) {
	peers(t, func(a, b *bed, p *Process) {
		s, calm, never, late := a.stream(0, driver.StreamNonBlocking), a.event(0, shared), a.event(0, shared), a.event(0, shared)
		a.ok(a.EventRecord(calm, s))
		a.gpu.Run(Handle(s), 5*ms)
		a.ok(a.EventRecord(late, s))
		handles := map[driver.Event]driver.IPCEventHandle{}
		a.on(0, func() {
			for _, e := range []driver.Event{calm, never, late} {
				h, r := a.IPCGetEventHandle(e)
				a.ok(r)
				again, r := a.IPCGetEventHandle(e)
				a.ok(r)
				require.Equal(t, h, again)
				handles[e] = h
			}
		})
		p.Kill()
		time.Sleep(time.Hour)
		b.on(0, func() {
			for e, want := range map[driver.Event]driver.Result{calm: driver.Success, never: driver.Success, late: driver.ErrorNotReady} {
				opened, r := b.IPCOpenEventHandle(handles[e])
				b.ok(r)
				require.Equal(t, want, b.EventQuery(opened))
				again, r := b.IPCOpenEventHandle(handles[e])
				b.ok(r)
				require.NotEqual(t, opened, again)
				b.ok(b.EventDestroy(opened))
				require.Equal(t, want, b.EventQuery(again))
				b.ok(b.EventDestroy(again))
			}
		})
		require.Empty(t, b.gpu.Problems())
	})
}

// Memory stays for those who have it open, however its own process lets go of it.
func TestMemoryOutlivesItsProcess(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(a *bed, p *Process, mem driver.DevicePtr)
	}{
		{"freed", func(a *bed, _ *Process, mem driver.DevicePtr) { a.ok(free(a, mem)) }},
		{"killed", func(_ *bed, p *Process, _ driver.DevicePtr) { p.Kill() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			peers(t, func(a, b *bed, p *Process) {
				const n = 1000
				s, u, mem, host := a.stream(0, driver.StreamNonBlocking), b.stream(0, driver.StreamNonBlocking), a.mem(0, n), b.pinned(n)
				a.ok(a.MemsetD8Async(mem, 3, n, s))
				a.ok(a.StreamSynchronize(s))
				var handle driver.IPCMemHandle
				a.on(0, func() {
					var r driver.Result
					handle, r = a.IPCGetMemHandle(mem)
					a.ok(r)
				})
				b.on(0, func() {
					before, _, r := b.MemGetInfo()
					b.ok(r)
					opened, r := b.IPCOpenMemHandle(handle, driver.IPCMemLazyEnablePeerAccess)
					b.ok(r)
					base, size, r := b.MemGetAddressRange(opened + 5)
					b.ok(r)
					require.Equal(t, opened, base)
					require.EqualValues(t, n, size)
					_, r = b.IPCGetMemHandle(opened)
					require.Equal(t, driver.ErrorInvalidValue, r)

					c.end(a, p, mem)
					b.ok(b.MemcpyDtoHAsync(at(host), opened, n, u))
					b.ok(b.StreamSynchronize(u))
					require.Equal(t, bytes.Repeat([]byte{3}, n), host)
					b.ok(b.MemsetD8Async(opened, 4, n, u))
					b.ok(b.MemcpyDtoHAsync(at(host), opened, n, u))
					b.ok(b.StreamSynchronize(u))
					require.Equal(t, bytes.Repeat([]byte{4}, n), host)
					after, _, r := b.MemGetInfo()
					b.ok(r)
					require.Equal(t, before, after, "it counts until it is closed")
					b.ok(b.IPCCloseMemHandle(opened))
					after, _, r = b.MemGetInfo()
					b.ok(r)
					require.EqualValues(t, 1024, after-before)
					_, _, r = b.MemGetAddressRange(opened)
					require.Equal(t, driver.ErrorNotFound, r)
				})
			})
		})
	}
}

func TestTheLastCloseWaits(t *testing.T) {
	peers(t, func(a, b *bed, _ *Process) {
		mem, s := a.mem(0, 64), b.stream(0, driver.StreamNonBlocking)
		var handle driver.IPCMemHandle
		a.on(0, func() {
			var r driver.Result
			handle, r = a.IPCGetMemHandle(mem)
			a.ok(r)
		})
		b.on(0, func() {
			p, r := b.IPCOpenMemHandle(handle, 0)
			b.ok(r)
			_, r = b.IPCOpenMemHandle(handle, 0)
			b.ok(r)
			b.gpu.Run(Handle(s), 50*ms)
			require.Zero(t, took(func() { b.ok(b.IPCCloseMemHandle(p)) }), "not the last")
			require.Equal(t, 50*ms, took(func() { b.ok(b.IPCCloseMemHandle(p)) }))
			require.Equal(t, driver.ErrorInvalidValue, b.IPCCloseMemHandle(p))

			// Opened again while the close waits.
			p, r = b.IPCOpenMemHandle(handle, 0)
			b.ok(r)
			b.gpu.Run(Handle(s), 50*ms)
			closed := make(chan driver.Result, 1)
			go b.on(0, func() { closed <- b.IPCCloseMemHandle(p) })
			synctest.Wait()
			again, r := b.IPCOpenMemHandle(handle, 0)
			b.ok(r)
			require.Equal(t, p, again)
			b.ok(<-closed)
			_, _, r = b.MemGetAddressRange(p)
			b.ok(r)

			// Closed by two, of whom one has no right to.
			b.gpu.Run(Handle(s), 50*ms)
			answers := make(chan driver.Result, 2)
			for range 2 {
				go b.on(0, func() { answers <- b.IPCCloseMemHandle(p) })
			}
			require.ElementsMatch(t, []driver.Result{driver.Success, driver.ErrorInvalidValue}, []driver.Result{<-answers, <-answers})
		})
		a.ok(free(a, mem))
		require.NotContains(t, strings.Join(b.gpu.Problems(), "\n"), "leaked: 64 bytes")
	})
}

// A cleanup runs outside the bubble and cannot wait there.
func TestCloseMemHandleInACleanup(t *testing.T) {
	requests, answers := make(chan func()), make(chan struct{})
	go func() {
		for f := range requests {
			f()
			answers <- struct{}{}
		}
	}()
	defer close(requests)
	peers(t, func(a, b *bed, _ *Process) {
		mem, s, host := a.mem(0, 64), b.stream(0, driver.StreamNonBlocking), b.pinned(64)
		a.on(0, func() {
			handle, r := a.IPCGetMemHandle(mem)
			a.ok(r)
			b.on(0, func() {
				p, r := b.IPCOpenMemHandle(handle, 0)
				b.ok(r)
				b.ok(b.MemsetD8Async(p, 1, 64, s))
				b.gpu.Run(Handle(s), 5*ms)
				b.ok(b.MemcpyDtoHAsync(at(host), p, 64, s))
				requests <- func() { b.on(0, func() { b.ok(b.IPCCloseMemHandle(p)) }) }
				<-answers
				require.Equal(t, driver.ErrorInvalidValue, b.IPCCloseMemHandle(p))
				b.ok(b.StreamSynchronize(s))
				require.EqualValues(t, 1, host[63], "the copy went on")
			})
		})
	})
}

// What a killed process had enqueued to write in memory that the processes share is
// never written; who waits there goes on when somebody else writes.
func TestWordsOfTheDead(t *testing.T) {
	peers(t, func(a, b *bed, p *Process) {
		page := fresh(4096, 4096)
		clear(page)
		for _, each := range []*bed{a, b} {
			each.on(0, func() { each.ok(each.MemHostRegister(at(page), 4096, driver.MemHostRegisterDeviceMap)) })
		}
		addr, word := driver.HostPtr(at(page)), word32(page)
		s, u := a.stream(0, driver.StreamNonBlocking), b.stream(0, driver.StreamNonBlocking)
		a.ok(a.StreamWriteValue32(s, addr, 1, 0))
		a.gpu.Run(Handle(s), 5*ms)
		a.ok(a.StreamWriteValue32(s, addr, 2, 0))
		b.ok(b.StreamWaitValue32(u, addr, 2, driver.StreamWaitValueGEQ))
		p.Kill()
		time.Sleep(time.Hour)
		require.EqualValues(t, 1, atomic.LoadUint32(word))
		require.Equal(t, driver.ErrorNotReady, b.StreamQuery(u))

		waited := make(chan driver.Result, 1)
		go func() { waited <- b.StreamSynchronize(u) }()
		time.Sleep(ms)
		synctest.Wait()
		require.Empty(t, waited)
		atomic.StoreUint32(word, 3)
		b.ok(<-waited)
	})
}

// Also what hangs on a hold, which ends at no time that is known, dies with the process.
func TestKillBehindAHold(t *testing.T) {
	peers(t, func(a, b *bed, p *Process) {
		s, calls, e, called := a.stream(0, driver.StreamNonBlocking), a.stream(0, driver.StreamNonBlocking), a.event(0, shared), a.event(0, shared)
		opened, behind := send(a, b, e), send(a, b, called)
		release := a.gpu.Hold(Handle(s))
		a.ok(a.EventRecord(e, s))
		a.gpu.Hold(Handle(calls))
		a.ok(a.LaunchHostFunc(calls, driver.NewHostFunc(func() { t.Error("called") })))
		a.ok(a.EventRecord(called, calls))
		u, v := b.stream(0, driver.StreamNonBlocking), b.stream(0, driver.StreamNonBlocking)
		b.ok(b.StreamWaitEvent(u, opened, 0))
		held := b.gpu.Hold(Handle(v))
		word := driver.HostPtr(at(a.pinned(4)))
		writes := a.stream(0, driver.StreamNonBlocking)
		a.gpu.Hold(Handle(writes))
		between, context := a.event(0, shared), a.event(0, shared)
		a.ok(a.EventRecord(between, writes))
		a.ok(a.CtxRecordEvent(a.ctx[0], context))
		all := []driver.Event{opened, behind, send(a, b, between), send(a, b, context)}
		a.ok(a.StreamWriteValue32(writes, word, 1, 0))
		p.Kill()
		release()
		for _, each := range all {
			w := b.stream(0, driver.StreamNonBlocking)
			b.ok(b.EventRecord(each, w))
			require.Equal(t, driver.ErrorNotReady, b.EventQuery(each), "recording it frees no dead process's event")
			require.Equal(t, driver.ErrorNotReady, b.StreamQuery(w))
		}
		require.Equal(t, driver.ErrorNotReady, b.StreamQuery(u))
		require.Equal(t, driver.ErrorNotReady, b.StreamQuery(v))
		plain := b.event(0, driver.EventDisableTiming)
		b.ok(b.EventRecord(plain, u))
		require.Equal(t, driver.ErrorNotReady, b.EventQuery(plain))
		b.ok(b.StreamWriteValue32(u, driver.HostPtr(at(b.pinned(4))), 1, 0))
		held()
		b.ok(b.StreamSynchronize(v))
		b.ok(b.EventRecord(plain, v))
		b.ok(b.EventQuery(plain))
		require.Zero(t, b.gpu.visible, "nothing is left to be watched")
	})
}
