//go:build !linux

package cuda

import "time"

const canSleepOnThread = false

// threadAlarm is not there.
type threadAlarm struct{}

func (*threadAlarm) rung() uint32                { return 0 }
func (*threadAlarm) ring(bool)                   {}
func (*threadAlarm) sleep(time.Duration, uint32) {}
