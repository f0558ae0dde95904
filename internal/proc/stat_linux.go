package proc

import (
	"bytes"
	"errors"
	"strconv"
	"syscall"
)

// stat is what is of use here of /proc/PID/stat, see proc_pid_stat(5).
type stat struct {
	state   byte
	flags   uint64
	threads uint64 // of the process, unless they have ended
	start   uint64 // in clock ticks since the machine started
	pending uint64 // the signals that are pending for this thread
}

// The places of the fields, the first being the one after the name.
const (
	fieldState   = 3
	fieldFlags   = 9
	fieldThreads = 20
	fieldStart   = 22
	fieldPending = 31
)

var errStat = errors.New("/proc/PID/stat is not of the form that proc_pid_stat(5) describes")

// parseStat is called a hundred times a second for each watched process, and does
// not allocate.
func parseStat(text []byte) (s stat, err error) {
	// The name may contain anything, but nothing behind it a parenthesis.
	_, text, _ = bytes.Cut(text[bytes.LastIndexByte(text, ')')+1:], []byte(" "))
	for field := fieldState; field <= fieldPending; field++ {
		end := bytes.IndexByte(text, ' ')
		if end < 0 {
			return stat{}, errStat // it goes on behind these fields
		}
		value := text[:end]
		text = text[end+1:]
		switch field {
		case fieldState:
			if len(value) != 1 {
				return stat{}, errStat
			}
			s.state = value[0]
		case fieldFlags:
			s.flags, err = strconv.ParseUint(string(value), 10, 64)
		case fieldThreads:
			s.threads, err = strconv.ParseUint(string(value), 10, 64)
		case fieldStart:
			s.start, err = strconv.ParseUint(string(value), 10, 64)
		case fieldPending:
			s.pending, err = strconv.ParseUint(string(value), 10, 64)
		}
		if err != nil {
			return stat{}, errStat
		}
	}
	return s, nil
}

// stage is how far a process or a thread is on its way to the end.
type stage int

const (
	alive stage = iota
	dying
	gone // nothing is left of it but the number
)

// Flags that the kernel sets in the course of a thread's end and never takes back,
// see the kernel's include/linux/sched.h.
const (
	exiting      = 0x4   // PF_EXITING
	postCoreDump = 0x8   // PF_POSTCOREDUMP: before the above; with a core dump long before
	dumpsCore    = 0x200 // PF_DUMPCORE
	killed       = 0x400 // PF_SIGNALED

	sigkillPending = 1 << (syscall.SIGKILL - 1) // on all threads of a killed process, before they have noticed
)

// stage returns how far one thread is.
func (s stat) stage() stage {
	switch {
	case s.state == 'Z' || s.state == 'X' || s.state == 'x':
		return gone
	case s.flags&(exiting|postCoreDump|dumpsCore|killed) != 0 || s.pending&sigkillPending != 0:
		return dying
	}
	return alive
}
