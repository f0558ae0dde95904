//go:build !linux && !windows

package cudatest

import (
	"bytes"
	"runtime"
	"strconv"
)

// threadID identifies the calling goroutine, which stands in for its thread
// where the system has no cheap thread number: code that forgets
// runtime.LockOSThread is not caught there.
func threadID() uint64 {
	var buf [64]byte
	// "goroutine 123 [running]:"
	s := bytes.TrimPrefix(buf[:runtime.Stack(buf[:], false)], []byte("goroutine "))
	s, _, _ = bytes.Cut(s, []byte(" "))
	id, _ := strconv.ParseUint(string(s), 10, 64)
	return id
}
