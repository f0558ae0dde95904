//go:build (amd64 || arm64) && !nocuda

package loader

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/ebitengine/purego"

	"github.com/purecuda/cuda/driver"
)

func openPath(path string) (*Library, error) {
	l, err := openFile(path)
	if tooOld(err) {
		return nil, err
	}
	if err != nil {
		return nil, &NotFoundError{Candidates: []Candidate{{path, err}}}
	}
	return l, nil
}

func openSystem() (*Library, error) {
	l, err := openSoname()
	if err == nil || tooOld(err) {
		return l, err
	}
	tried := []Candidate{{soname, err}}
	for _, path := range candidates() {
		l, err := openFile(path)
		if err == nil || tooOld(err) {
			return l, err
		}
		tried = append(tried, Candidate{path, err})
	}
	return nil, &NotFoundError{Candidates: tried}
}

// openFile checks the file and loads it. What is loaded is the resolved path,
// so that it is the file that was checked.
func openFile(path string) (*Library, error) {
	real, err := checkPath(path)
	if err != nil {
		return nil, err
	}
	if err := checkFile(real); err != nil {
		return nil, err
	}
	return dlopen(real)
}

// openSoname lets the system's loader find the library. Which file it will take
// cannot be asked beforehand, so the call is not made while a file that must not
// be loaded stands where the loader looks. An empty element of LD_LIBRARY_PATH
// is the working directory.
func openSoname() (*Library, error) {
	var places []string
	for _, dir := range filepath.SplitList(strings.ReplaceAll(os.Getenv("LD_LIBRARY_PATH"), ";", ":")) {
		places = append(places, filepath.Join(dir, soname))
	}
	for _, path := range append(places, candidates()...) {
		if err := refuse(path); err != nil {
			return nil, fmt.Errorf("not asked of the system's loader, which may take %s: %w", path, err)
		}
	}
	return dlopen(soname)
}

// refuse says why a file must be kept from the system's loader. Files that the
// loader itself rejects or skips, and missing ones, are not its business.
func refuse(path string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil
	}
	if !filepath.IsAbs(path) {
		return errRelative
	}
	if inStubs(path) || inStubs(real) {
		return errStub
	}
	if err := checkFile(real); errors.Is(err, errTruncated) || errors.Is(err, errIrregular) {
		return err
	}
	return nil
}

// dlopen loads name and binds its functions. All symbols are resolved at once,
// so that a missing dependency is an error here and not the process's end at
// some call later; they stay local, so that they replace nobody else's.
//
// The loader keeps an error's text per thread, hence the lock. The library is
// never closed, not even after an error: its threads and handlers would stay.
func dlopen(name string) (*Library, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	handle, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, refusal(name, err)
	}
	return loaded(handle, func() (*Library, error) { return bindLibrary(name, handle) })
}

// refusal is the system loader's reason without the name, which it begins with.
func refusal(name string, err error) error {
	text := strings.TrimPrefix(err.Error(), name+": ")
	if text == "" {
		text = "the system's loader refused it without a reason"
	}
	return errors.New(text)
}

func bindLibrary(name string, handle uintptr) (*Library, error) {
	sym := func(name string) uintptr {
		fn, err := purego.Dlsym(handle, name)
		if err != nil {
			return 0
		}
		return fn
	}
	path := name
	if file := mappedFile(sym("cuInit")); file != "" {
		path = file
	}
	if inStubs(path) {
		return nil, fmt.Errorf("%s: %w", path, errStub)
	}
	api, err := table(path, sym)
	if err != nil {
		return nil, err
	}
	return &Library{API: api, Path: path}, nil
}

// tooOld reports whether a driver was found that lacks required functions. The
// search ends there: to run on another library than the system's would hide it.
func tooOld(err error) bool {
	missing := (*driver.MissingError)(nil)
	return errors.As(err, &missing)
}
