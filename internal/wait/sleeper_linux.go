package wait

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const canSleepOnThread = true

// threadSleeper puts a thread to sleep on a futex.
type threadSleeper struct {
	wakes atomic.Uint32
	slept time.Duration // since it last yielded
	load  load
}

const (
	futexWait = 128 // FUTEX_WAIT_PRIVATE
	futexWake = 129 // FUTEX_WAKE_PRIVATE

	// slack is by how much Linux prolongs every sleep of a thread, unless the thread
	// has asked for less.
	slack = 50 * time.Microsecond
)

func (s *threadSleeper) seen() uint32 { return s.wakes.Load() }

func (s *threadSleeper) wake(asleep bool) {
	s.wakes.Add(1)
	if asleep {
		_, _, _ = syscall.RawSyscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(&s.wakes)), futexWake, 1, 0, 0, 0)
	}
}

// sleep sleeps in a system call. Go's scheduler takes the processor from a
// goroutine that seems not to yield for 10 ms, and keeping watch for that costs it more
// than all of the polling here. So a yield comes before; more of them would cost
// more, since each wakes another thread to look for work. A processor idles with the
// sleeping thread then. When processors are scarce, this does not yield.
func (s *threadSleeper) sleep(d time.Duration, seen uint32) {
	t := syscall.NsecToTimespec(int64(max(d-slack, time.Microsecond)))
	_, _, _ = syscall.Syscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(&s.wakes)), futexWait, uintptr(seen), uintptr(unsafe.Pointer(&t)), 0, 0)
	if s.slept += max(d, slack); s.slept < yieldEvery {
		return
	}
	s.slept = 0
	s.load.measure()
	if !s.load.scarce {
		runtime.Gosched()
	}
}

const yieldEvery = 8 * time.Millisecond

// load says whether the process needs all of its processors.
type load struct {
	scarce bool
	at     time.Time
	cpu    time.Duration // used until then
}

// measure looks at what the process has used since it was last called.
func (l *load) measure() {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return
	}
	now, cpu := time.Now(), time.Duration(u.Utime.Nano()+u.Stime.Nano())
	used := float64(cpu-l.cpu) / float64(now.Sub(l.at))
	l.scarce = used > 0.9*float64(runtime.GOMAXPROCS(0)-1)
	l.at, l.cpu = now, cpu
}
