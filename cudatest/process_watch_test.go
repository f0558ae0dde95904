package cudatest

import (
	"io/fs"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

func identity(t *testing.T, api *driver.API) driver.Process {
	t.Helper()
	p, err := api.Processes.Find(0)
	require.NoError(t, err)
	return p
}

func TestIdentities(t *testing.T) {
	gpu, other := New(Config{}), New(Config{})
	first, second := gpu.API(), gpu.NewProcess()
	a, b := identity(t, first), identity(t, second.API())
	require.Equal(t, 1001, a.PID)
	require.Equal(t, 1002, b.PID)
	require.NotEqual(t, a.Start, b.Start)
	require.Equal(t, a.Boot, b.Boot)
	require.EqualValues(t, 1, a.Namespace)
	require.Equal(t, "simulated", string(a.Boot[:9]))
	require.NotEqual(t, a.Boot, identity(t, other.API()).Boot)

	found, err := first.Processes.Find(b.PID)
	require.NoError(t, err)
	require.Equal(t, b, found)
	_, err = first.Processes.Find(4711)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.EqualError(t, err, "find process 4711: file does not exist")

	for _, end := range []func(){second.BeginKill, second.Kill} {
		end()
		_, err = first.Processes.Find(b.PID)
		require.ErrorIs(t, err, fs.ErrNotExist)
		found, err = second.API().Processes.Find(b.PID)
		require.NoError(t, err, "itself")
		require.Equal(t, b, found)
	}

	third := identity(t, gpu.NewProcess().API())
	require.Equal(t, 1003, third.PID, "a number is not given out again")
	again := identity(t, gpu.NewProcessWith(ProcessConfig{PID: b.PID}).API())
	require.Equal(t, b.PID, again.PID, "unless it is asked for")
	require.NotEqual(t, b, again)
	gpu.NewProcessWith(ProcessConfig{PID: 1004})
	require.Equal(t, 1005, identity(t, gpu.NewProcess().API()).PID)
}

func TestNamespacesAreApart(t *testing.T) {
	gpu := New(Config{})
	inside := gpu.NewProcessWith(ProcessConfig{Namespace: 9, PID: 1001}).API()
	same := gpu.NewProcessWith(ProcessConfig{Namespace: 9}).API()
	id, outside := identity(t, inside), identity(t, gpu.API())
	require.EqualValues(t, 9, id.Namespace)
	require.NotEqual(t, outside, id)
	found, err := same.Processes.Find(1001)
	require.NoError(t, err)
	require.Equal(t, id, found, "and not the other of that number")
	found, err = gpu.API().Processes.Find(1001)
	require.NoError(t, err)
	require.Equal(t, outside, found)
	_, err = gpu.API().Processes.Find(identity(t, same).PID)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = gpu.API().Processes.Watch(id, func() {}, func() {})
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = same.Processes.Watch(id, func() {}, func() {})
	require.NoError(t, err)
}

// heard is what a watch was told, in order.
type heard struct {
	mu   sync.Mutex
	what []string
}

func (h *heard) note(what string) func() {
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.what = append(h.what, what)
	}
}

func (h *heard) list() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string{}, h.what...)
}

func (h *heard) watch(t *testing.T, by *driver.API, p driver.Process) (stop func()) {
	t.Helper()
	stop, err := by.Processes.Watch(p, h.note("dying"), h.note("gone"))
	require.NoError(t, err)
	return stop
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gpu := New(Config{})
		p := gpu.NewProcess()
		id := identity(t, p.API())
		var early, stopped, half, late, own heard
		early.watch(t, gpu.API(), id)
		own.watch(t, p.API(), id)()
		own.watch(t, p.API(), id)
		stop := stopped.watch(t, gpu.NewProcess().API(), id)
		stopHalf := half.watch(t, gpu.API(), id)
		stop()
		stop()
		require.Empty(t, early.list())

		p.BeginKill()
		p.BeginKill()
		require.Equal(t, []string{"dying"}, early.list())
		late.watch(t, gpu.API(), id)
		require.Equal(t, []string{"dying"}, late.list(), "at once")
		stopHalf()

		p.Kill()
		p.Kill()
		require.Equal(t, []string{"dying", "gone"}, early.list())
		require.Equal(t, []string{"dying", "gone"}, late.list())
		require.Equal(t, []string{"dying"}, half.list())
		require.Empty(t, stopped.list())
		require.Empty(t, own.list(), "the process itself cannot hear of it")
		stopHalf()

		_, err := gpu.API().Processes.Watch(id, late.note("dying"), late.note("gone"))
		require.ErrorIs(t, err, fs.ErrNotExist)
		again := gpu.NewProcessWith(ProcessConfig{PID: id.PID})
		_, err = gpu.API().Processes.Watch(id, late.note("dying"), late.note("gone"))
		require.ErrorIs(t, err, fs.ErrNotExist, "another has its number")
		again.Kill()
		require.Len(t, late.list(), 2)
	})
}

// What is called may call the driver, and so may whoever waits for it.
func TestWatchesHoldNoLock(t *testing.T) {
	peers(t, func(a, b *bed, p *Process) {
		s, e := a.stream(0, driver.StreamNonBlocking), a.event(0, shared)
		opened := send(a, b, e)
		a.gpu.Run(Handle(s), 5*ms)
		a.ok(a.EventRecord(e, s))
		id, mem := identity(t, a.API), a.mem(0, 64)
		var handle driver.IPCMemHandle
		a.on(0, func() {
			var r driver.Result
			handle, r = a.IPCGetMemHandle(mem)
			a.ok(r)
		})
		var answers []driver.Result
		ask := func() {
			b.on(0, func() {
				_, r := b.IPCOpenMemHandle(handle, 0)
				answers = append(answers, b.EventQuery(opened), r)
			})
			_, err := b.Processes.Find(id.PID)
			require.ErrorIs(t, err, fs.ErrNotExist)
		}
		_, err := b.Processes.Watch(id, ask, ask)
		require.NoError(t, err)
		p.Kill()
		require.Equal(t, []driver.Result{
			driver.ErrorNotReady, driver.Success, // while it is dying
			driver.ErrorNotReady, driver.ErrorInvalidValue,
		}, answers)
	})
}

func TestStopWaitsForWhatRuns(t *testing.T) {
	gpu := New(Config{})
	p := gpu.NewProcess()
	entered, leave := make(chan struct{}), make(chan struct{})
	var left atomic.Bool
	stop, err := gpu.API().Processes.Watch(identity(t, p.API()), func() {
		close(entered)
		<-leave
		time.Sleep(2 * time.Millisecond)
		left.Store(true)
	}, func() { t.Error("called after it was stopped") })
	require.NoError(t, err)
	var all sync.WaitGroup
	all.Go(p.BeginKill)
	<-entered
	for range 2 { // and they do not hinder each other
		all.Go(func() {
			stop()
			if !left.Load() {
				t.Error("it has not returned yet")
			}
		})
	}
	time.Sleep(2 * time.Millisecond)
	close(leave)
	all.Wait()
	p.Kill()
}

// A watch that is stopped while another one's function runs hears nothing.
func TestStopBesideAnother(t *testing.T) {
	gpu := New(Config{})
	p := gpu.NewProcess()
	first, leave := make(chan int, 2), make(chan struct{})
	var stops [2]func()
	for i := range stops {
		stop, err := gpu.API().Processes.Watch(identity(t, p.API()), func() {
			first <- i
			<-leave
		}, func() {})
		require.NoError(t, err)
		stops[i] = stop
	}
	var kill sync.WaitGroup
	kill.Go(p.BeginKill)
	stops[1-<-first]()
	close(leave)
	kill.Wait()
	require.Empty(t, first)
}

// Watches begin and end while the process does.
func TestWatchStorm(t *testing.T) {
	for range 50 {
		gpu := New(Config{})
		p := gpu.NewProcess()
		id := identity(t, p.API())
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				var h heard
				stop, err := gpu.API().Processes.Watch(id, h.note("dying"), h.note("gone"))
				if err != nil {
					require.ErrorIs(t, err, fs.ErrNotExist)
					return
				}
				if i%2 == 0 {
					stop()
					told := h.list()
					p.Kill()
					require.Equal(t, told, h.list(), "after stop")
				}
				require.Subset(t, [][]string{{}, {"dying"}, {"dying", "gone"}}, [][]string{h.list()})
			})
		}
		all.Go(p.BeginKill)
		all.Go(p.Kill)
		all.Wait()
	}
}

func TestTheDyingWorkGoesOn(t *testing.T) {
	peers(t, func(a, b *bed, p *Process) {
		s, u, e := a.stream(0, driver.StreamNonBlocking), a.stream(0, driver.StreamNonBlocking), a.event(0, shared)
		opened, host := send(a, b, e), make([]byte, 64)
		a.gpu.Run(Handle(s), 5*ms)
		a.ok(a.EventRecord(e, s))
		waiting := make(chan driver.Result, 1)
		go func() { waiting <- a.StreamSynchronize(s) }()
		slept := make(chan struct{})
		go func() {
			a.Sleep([]driver.Event{e}, 0, nil)
			close(slept)
		}()
		called := false
		a.gpu.Run(Handle(u), ms)
		a.ok(a.LaunchHostFunc(u, driver.NewHostFunc(func() { called = true })))
		synctest.Wait()

		p.BeginKill()
		require.Equal(t, driver.ErrorDeinitialized, <-waiting, "its own code has ended")
		require.Zero(t, took(func() { <-slept }))
		require.Equal(t, driver.ErrorDeinitialized, a.StreamQuery(s))
		require.Equal(t, driver.ErrorDeinitialized, a.MemcpyDtoHAsync(at(host), 0, 64, s))
		require.Equal(t, driver.ErrorNotReady, b.EventQuery(opened))
		require.Equal(t, 5*ms, took(func() { b.ok(b.EventSynchronize(opened)) }), "its work goes on")
		require.False(t, called, "but its host functions do not")
		require.Len(t, b.gpu.Problems(), 1, "it leaks nothing; the other process has the event open")
		p.Kill()
		b.ok(b.EventQuery(opened))
	})
}
