package proc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/purecuda/cuda/driver"
)

// status is what is of use here of /proc/PID/status, which says more about numbers
// than /proc/PID/stat, and anybody may read it.
type status struct {
	tgid    int   // the process's number here
	numbers []int // the same in the PID namespaces from this one down to its own
}

func readStatus(pid string) (s status, err error) {
	text, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return s, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		switch name {
		case "Tgid":
			s.tgid, _ = strconv.Atoi(strings.TrimSpace(value))
		case "NStgid":
			for _, n := range strings.Fields(value) {
				number, _ := strconv.Atoi(n)
				s.numbers = append(s.numbers, number)
			}
		}
	}
	if s.numbers == nil { // as in gVisor
		s.numbers = []int{s.tgid}
	}
	return s, nil
}

// namespace returns the inode of a process's PID namespace.
func namespace(pid string) (uint64, error) {
	link, err := os.Readlink("/proc/" + pid + "/ns/pid")
	if err != nil {
		return 0, err
	}
	digits, _ := strings.CutPrefix(link, "pid:[")
	ns, err := strconv.ParseUint(strings.TrimSuffix(digits, "]"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("/proc/%s/ns/pid is not of the form pid:[N]: %q", pid, link)
	}
	return ns, nil
}

// numberHere returns the number that p has in this process's namespace, own's. For a
// process of another namespace it looks at all processes.
func numberHere(p, own driver.Process) (int, error) {
	if p.Namespace == own.Namespace {
		return p.PID, nil
	}
	names, err := threads("/proc")
	if err != nil {
		return 0, fmt.Errorf("look for process %d of PID namespace %d: %v", p.PID, p.Namespace, err)
	}
	seen := false // any process of p's namespace
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		s, err := readStatus(name)
		if err != nil || len(s.numbers) < 2 {
			continue
		}
		if q, _, err := identify(pid, own); err == nil && q.Namespace == p.Namespace {
			seen = true
			if q == p {
				return pid, nil
			}
		}
	}
	if seen {
		return 0, notFound(fmt.Sprintf("there is no process %d in PID namespace %d any more", p.PID, p.Namespace))
	}
	return 0, fmt.Errorf("no process of PID namespace %d, where its number is %d, can be seen from PID namespace %d, that of this process: %w",
		p.Namespace, p.PID, own.Namespace, errors.ErrUnsupported)
}
