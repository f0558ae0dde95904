package driver

import "encoding/hex"

// Process identifies a process among all that run on a machine or ever did since
// it started, so that a number that was given out again is not taken for the
// process that had it before. Two are the same if they are equal by ==.
type Process struct {
	PID       int    // its number in Namespace
	Start     uint64 // when it started, in clock ticks since the machine did
	Boot      Boot   // which start of which machine
	Namespace uint64 // the inode of its PID namespace
}

// Boot identifies one start of one machine.
type Boot [16]byte

// String formats b as the kernel does, in hexadecimal with dashes.
func (b Boot) String() string {
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// Processes stands in for the operating system's processes where those of a driver
// are simulated. All of its functions may be called from any goroutine.
type Processes struct {
	// Find returns the process with a number in this process's namespace, 0 for this
	// process itself. If there is none the error matches fs.ErrNotExist.
	Find func(pid int) (Process, error)
	// Watch has dying called when p begins to end, and gone when nothing of it is
	// left: until then its work on a device may still go on for a moment. Each is
	// called once, dying first, on any goroutine and even before Watch returns, and must not block. After stop has
	// returned none is called any more; it must not be called by them. If there is no such process, or another has its
	// number, the error matches fs.ErrNotExist.
	Watch func(p Process, dying, gone func()) (stop func(), err error)
}
