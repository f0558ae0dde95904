package cuda

import "time"

// alarm is what a watcher sleeps on: until a time, or until it is rung.
//
// A goroutine's sleep is rounded up to a millisecond while a program is idle; a
// thread's is not, and costs less. In a testing/synctest bubble, and on systems
// without a thread's sleep that can be interrupted, a timer has to do, or what the
// driver's table offers instead ([driver.API.Sleep]).
type alarm struct {
	thread threadAlarm
	timer  bool
	bell   chan struct{}
}

// start prepares for a watcher in the calling goroutine's bubble, if it is in one.
func (a *alarm) start(virtual bool) {
	a.timer = virtual || !canSleepOnThread
	if a.timer {
		a.bell = make(chan struct{}, 1)
	}
}

// rung returns a number that changes when the alarm is rung.
func (a *alarm) rung() uint32 {
	if a.timer {
		select {
		case <-a.bell: // what it was rung for is about to be seen
		default:
		}
		return 0
	}
	return a.thread.rung()
}

// ring wakes the watcher, or keeps it from falling asleep; asleep says that it may
// be asleep already.
func (a *alarm) ring(asleep bool) {
	if !a.timer {
		a.thread.ring(asleep)
		return
	}
	select {
	case a.bell <- struct{}{}:
	default:
	}
}

// sleep sleeps for d, unless the alarm was rung since rung was asked.
func (a *alarm) sleep(d time.Duration, rung uint32) {
	if !a.timer {
		a.thread.sleep(d, rung)
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-a.bell:
	case <-t.C:
	}
}
