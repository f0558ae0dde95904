package cudatest

import (
	"syscall"
	"time"
)

// nap sleeps for a short time. A goroutine's sleep would be rounded up to a
// millisecond in an idle program; a thread's is not.
func nap(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil) // waking early does no harm
}
