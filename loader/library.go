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

// system holds what Open("") gave. Its lock is held while any library loads, so
// that callers at the same time get the same one. Failures are not kept: a
// driver may be installed, or its devices appear, while the process runs.
var system struct {
	sync.Mutex
	library *Library
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
	system.Lock()
	defer system.Unlock()
	if path != "" {
		return openPath(path)
	}
	if system.library == nil {
		l, err := openSystem()
		if err != nil {
			return nil, err
		}
		system.library = l
	}
	return system.library, nil
}
