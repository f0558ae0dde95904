package wait

import "time"

// sleeper is what a loop sleeps on: until a time, or until it is woken.
//
// A goroutine's sleep is rounded up to a millisecond while a program is idle; a thread's is
// not, and costs less. In a bubble of testing/synctest only a channel does, as a goroutine on
// a thread counts as busy there; and on systems where nobody can wake a sleeping thread, a
// timer.
type sleeper struct {
	thread  threadSleeper
	channel bool          // it uses wakes
	wakes   chan struct{} // made by the loop's starter, and so for his bubble
}

// start prepares for a loop that the caller is about to start.
func (s *sleeper) start(virtual bool) {
	s.channel = virtual || !canSleepOnThread
	if s.channel {
		s.wakes = make(chan struct{}, 1)
	}
}

// seen forgets former wakes: what they were for is about to be seen. It returns what sleep
// must be given, so that it does not sleep if there are later ones.
func (s *sleeper) seen() uint32 {
	if !s.channel {
		return s.thread.seen()
	}
	select {
	case <-s.wakes:
	default:
	}
	return 0
}

// wake wakes the loop or keeps it from falling asleep; asleep says that it may be asleep
// already.
func (s *sleeper) wake(asleep bool) {
	if !s.channel {
		s.thread.wake(asleep)
		return
	}
	select {
	case s.wakes <- struct{}{}:
	default:
	}
}

// sleep sleeps for d, unless there was a wake since seen was called.
func (s *sleeper) sleep(d time.Duration, seen uint32) {
	if !s.channel {
		s.thread.sleep(d, seen)
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-s.wakes:
	case <-t.C:
	}
}
