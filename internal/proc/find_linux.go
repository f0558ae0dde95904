package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strconv"
	"sync/atomic"

	"github.com/purecuda/cuda/driver"
)

// Find returns the process with a number in this process's PID namespace; 0 is this
// process. It is equal to what the process finds out about itself, even if that is
// in a PID namespace below this one, and so has another number there; finding it then
// takes the permissions of a debugger. If there is none, or it is ending, the error
// matches fs.ErrNotExist.
//
// Processes in different time namespaces do not agree on when one was started, and so
// do not recognise each other.
func Find(pid int) (driver.Process, error) {
	own, err := self()
	if err != nil || pid == 0 || pid == own.PID {
		return own, err
	}
	if pid < 0 || pid > math.MaxInt32 {
		return driver.Process{}, noProcess(pid)
	}
	p, far, err := identify(pid, own)
	switch {
	case err != nil && vanished(err):
		return driver.Process{}, noProcess(pid)
	case err != nil:
		return driver.Process{}, fmt.Errorf("find process %d: %w", pid, err)
	case far != alive:
		return driver.Process{}, notFound(fmt.Sprintf("process %d is ending", pid))
	}
	return p, nil
}

// known is this process, once it is known.
var known atomic.Pointer[driver.Process]

// self finds this process. Its errors never match fs.ErrNotExist.
func self() (driver.Process, error) {
	if p := known.Load(); p != nil {
		return *p, nil
	}
	own := os.Getpid()
	status, err := readStatus("self")
	if err != nil {
		return driver.Process{}, fmt.Errorf("processes cannot be told apart without /proc; mount it for this PID namespace: %w (%v)", errors.ErrUnsupported, err)
	}
	if len(status.numbers) != 1 || status.tgid != own {
		return driver.Process{}, fmt.Errorf("/proc is of another PID namespace, where process %d has number %d; mount that of this namespace (as unshare --mount-proc does): %w", own, status.tgid, errors.ErrUnsupported)
	}
	boot, err := boot()
	if err != nil {
		return driver.Process{}, err
	}
	ns, err := namespace("self")
	if err != nil {
		return driver.Process{}, fmt.Errorf("find the PID namespace of this process: %v", err)
	}
	p, _, err := identify(own, driver.Process{Boot: boot, Namespace: ns})
	if err != nil {
		return driver.Process{}, fmt.Errorf("find this process, %d: %v", own, err)
	}
	known.Store(&p)
	return p, nil
}

// boot finds out which start of the machine this is.
func boot() (b driver.Boot, err error) {
	const name = "/proc/sys/kernel/random/boot_id"
	text, err := os.ReadFile(name)
	if err != nil {
		return b, fmt.Errorf("find out which start of the machine this is: %v", err)
	}
	digits := bytes.ReplaceAll(bytes.TrimSpace(text), []byte("-"), nil)
	if len(digits) != 2*len(b) {
		return b, fmt.Errorf("%s is not a UUID: %q", name, text)
	}
	for i := range b {
		n, err := strconv.ParseUint(string(digits[2*i:2*i+2]), 16, 8)
		if err != nil {
			return b, fmt.Errorf("%s is not a UUID: %q", name, text)
		}
		b[i] = byte(n)
	}
	return b, nil
}

// identify identifies the process that has a number here, and says how far it is. It
// is of our namespace, unless the kernel says otherwise.
func identify(pid int, own driver.Process) (p driver.Process, far stage, err error) {
	f, err := open(pid)
	if err != nil {
		return p, gone, err
	}
	defer f.Close()
	status, err := readStatus(strconv.Itoa(pid))
	if err != nil {
		return p, gone, err
	}
	if status.tgid != pid {
		return p, gone, noProcess(pid) // but a thread of one
	}
	p = driver.Process{PID: pid, Boot: own.Boot, Namespace: own.Namespace}
	var unreadable error
	if n := len(status.numbers); n > 1 {
		p.PID = status.numbers[n-1]
		p.Namespace, unreadable = namespace(strconv.Itoa(pid))
	}
	// That all of this was about one process is certain if it still is there.
	if p.Start, far, err = look(pid, f); err == nil && unreadable != nil {
		err = fmt.Errorf("it is in another PID namespace, and this process has no permission to find out which: %w", unreadable)
	}
	return p, far, err
}

func noProcess(pid int) error {
	return notFound(fmt.Sprintf("there is no process %d", pid))
}

// errHidden is for a process that is there, but not in /proc.
var errHidden error = hiddenError{}

// hiddenError is not made by fmt, which would cost every program that links this a
// third of what initialising all of its packages does.
type hiddenError struct{}

func (hiddenError) Error() string {
	return "it is another user's, and /proc is mounted with hidepid: " + fs.ErrPermission.Error()
}
func (hiddenError) Unwrap() error { return fs.ErrPermission }
