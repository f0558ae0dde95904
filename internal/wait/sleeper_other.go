//go:build !linux

package wait

import "time"

const canSleepOnThread = false

// threadSleeper is not there.
type threadSleeper struct{}

func (*threadSleeper) seen() uint32                { return 0 }
func (*threadSleeper) wake(bool)                   {}
func (*threadSleeper) sleep(time.Duration, uint32) {}
