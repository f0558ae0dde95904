package loader

import (
	"sync"

	"github.com/purecuda/cuda/driver"
)

// Library is an opened driver library. It stays loaded until the process ends.
type Library struct {
	// API is the complete table of the library's functions.
	API *driver.API
	// Path is the file that was loaded, its symbolic links resolved.
	Path string
}

// opened holds the libraries of this process. Its lock is held while a library
// loads, so that callers at the same time get the same one. Failures are not
// kept: a driver may be installed, or its devices appear, while the process runs.
var opened struct {
	sync.Mutex
	system   *Library             // what Open("") gave
	byHandle map[uintptr]*Library // by the system loader's handle, one per file
}

// Open loads the driver library at path, an absolute path, or with an empty
// path the one that the system has. Opening the same library again returns the
// same *Library, whatever path led there. Any goroutine may call it; the first
// call takes milliseconds, because it maps a large file.
//
// The error is a [*NotFoundError] where no usable library was found, it wraps a
// [*driver.MissingError] where the driver is too old, and [errors.ErrUnsupported]
// where the program cannot load a driver at all.
func Open(path string) (*Library, error) {
	opened.Lock()
	defer opened.Unlock()
	if path != "" {
		return openPath(path)
	}
	if opened.system == nil {
		l, err := openSystem()
		if err != nil {
			return nil, err
		}
		opened.system = l
	}
	return opened.system, nil
}

// loaded returns the library for a handle from the system's loader, binding its
// functions the first time.
func loaded(handle uintptr, load func() (*Library, error)) (*Library, error) {
	if l := opened.byHandle[handle]; l != nil {
		return l, nil
	}
	l, err := load()
	if err != nil {
		return nil, err
	}
	if opened.byHandle == nil {
		opened.byHandle = make(map[uintptr]*Library)
	}
	opened.byHandle[handle] = l
	return l, nil
}
