//go:build !nocuda && ((linux && (amd64 || arm64)) || (windows && amd64))

package loader

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

var (
	errRelative = errors.New("not an absolute path: the file would depend on the working directory")
	errStub     = errors.New("a stub library of the CUDA toolkit, which only serves to link programs and cannot run")
)

// checkPath refuses paths that must not be loaded and returns the regular file
// that path leads to.
func checkPath(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", errRelative
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", reason(err)
	}
	if inStubs(path) || inStubs(real) {
		return "", errStub
	}
	info, err := os.Stat(real)
	if err != nil {
		return "", reason(err)
	}
	switch {
	case info.IsDir():
		return "", errors.New("a directory; the path of the library file is wanted")
	case !info.Mode().IsRegular():
		return "", errors.New("not a regular file")
	}
	return real, nil
}

// inStubs reports whether path goes through a directory of stub libraries.
func inStubs(path string) bool {
	dir := filepath.ToSlash(filepath.Dir(path))
	return slices.Contains(strings.Split(dir, "/"), "stubs")
}

// reason drops the path from err: messages name the candidate already.
func reason(err error) error {
	if pe := (*os.PathError)(nil); errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
