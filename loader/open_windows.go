//go:build amd64 && !nocuda

package loader

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

// dll stands in the system directory, where the NVIDIA driver installs it.
const dll = "nvcuda.dll"

// Flags of LoadLibraryEx: where the library and what it needs are looked for.
// The working directory and PATH never count, as anybody may write there.
const (
	searchLoadDir  = 0x100 // LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR
	searchSystem32 = 0x800 // LOAD_LIBRARY_SEARCH_SYSTEM32
)

var (
	kernel32          = syscall.NewLazyDLL("kernel32.dll") // part of every process
	loadLibraryEx     = kernel32.NewProc("LoadLibraryExW")
	getModuleFileName = kernel32.NewProc("GetModuleFileNameW")
)

func openPath(path string) (*Library, error) {
	real, err := checkPath(path)
	if err == nil {
		var l *Library
		if l, err = load(real, searchLoadDir|searchSystem32); err == nil {
			return l, nil
		}
	}
	return nil, failed(path, err)
}

func openSystem() (*Library, error) {
	l, err := load(dll, searchSystem32)
	if err != nil {
		return nil, failed(dll, err)
	}
	return l, nil
}

// failed keeps a too old driver's error as it is: the library was found.
func failed(name string, err error) error {
	if missing := (*driver.MissingError)(nil); errors.As(err, &missing) {
		return err
	}
	return &NotFoundError{Candidates: []Candidate{{name, err}}}
}

// load loads name and binds its functions. The library is never freed.
func load(name string, search uintptr) (*Library, error) {
	p, err := syscall.UTF16PtrFromString(name)
	if err != nil {
		return nil, err
	}
	handle, _, err := loadLibraryEx.Call(uintptr(unsafe.Pointer(p)), 0, search)
	if handle == 0 {
		return nil, fmt.Errorf("LoadLibraryEx: %w", err)
	}
	return loaded(handle, func() (*Library, error) {
		path := name
		if file := moduleFile(handle); file != "" {
			path = file
		}
		api, err := table(path, func(name string) uintptr {
			fn, err := syscall.GetProcAddress(syscall.Handle(handle), name)
			if err != nil {
				return 0
			}
			return fn
		})
		if err != nil {
			return nil, err
		}
		return &Library{API: api, Path: path}, nil
	})
}

// moduleFile returns the path of a loaded library, or "" if it cannot tell.
func moduleFile(handle uintptr) string {
	buf := make([]uint16, 1<<15) // the longest path that Windows has
	n, _, _ := getModuleFileName.Call(handle, uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)))
	return syscall.UTF16ToString(buf[:n])
}
