package cudatest

import "syscall"

var getCurrentThreadID = syscall.NewLazyDLL("kernel32.dll").NewProc("GetCurrentThreadId")

// threadID identifies the calling OS thread.
func threadID() uint64 {
	id, _, _ := getCurrentThreadID.Call()
	return uint64(id)
}
