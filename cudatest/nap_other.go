//go:build !linux

package cudatest

import "time"

// nap sleeps for a short time; in an idle program for up to a millisecond.
func nap(d time.Duration) { time.Sleep(d) }
