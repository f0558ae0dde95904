package proc

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"
)

// open opens the statistics of the process that has a number now. What is read there
// later is about that process, even if another has its number by then.
func open(pid int) (*os.File, error) {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil && vanished(err) && pid > 0 && syscall.Kill(pid, 0) == syscall.EPERM {
		return nil, errHidden
	}
	return f, err
}

// look says when the process that an open file of statistics is about was started,
// and how far it is. It is gone with an error that matches fs.ErrNotExist.
func look(pid int, f *os.File) (start uint64, far stage, err error) {
	s, err := read(f)
	switch {
	case vanished(err):
		return 0, gone, noProcess(pid)
	case err != nil:
		return 0, alive, err
	}
	if far = s.stage(); far != alive {
		far = leastFar(pid, f)
	}
	return s.start, far, nil
}

func read(f *os.File) (stat, error) {
	var text [1024]byte // more than the fields that matter can take
	n, err := f.ReadAt(text[:], 0)
	if err != nil && err != io.EOF {
		return stat{}, err
	}
	return parseStat(text[:n])
}

// leastFar returns how far the threads of a process are whose main thread, which
// its own statistics are about, ends: the others may live on, and one that
// executes a program takes the main thread's place. In doubt it says alive, for
// there will be another look.
//
// A list of threads may lack some when threads end meanwhile. It was complete when
// they were counted if all that it has were there before and after.
func leastFar(pid int, f *os.File) stage {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	list, err := threads(dir)
	if err != nil || least(dir, list) == alive {
		return alive
	}
	main, err := read(f)
	if err != nil || main.stage() == alive || main.threads != uint64(len(list)) {
		return alive
	}
	return least(dir, list)
}

// least returns how far the threads in a list are, and alive if one is not there.
func least(dir string, list []string) stage {
	far := gone
	for _, thread := range list {
		text, err := os.ReadFile(dir + "/" + thread + "/stat")
		if err != nil {
			return alive
		}
		s, err := parseStat(text)
		if err != nil {
			return alive
		}
		far = min(far, s.stage())
	}
	return far
}

func threads(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(0)
}

// vanished reports whether a file in /proc could not be read because its process has
// ended.
func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}
