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
	errRelative  = errors.New("not an absolute path: the file would depend on the working directory")
	errDirectory = errors.New("a directory; the path of the library file is wanted")
	errIrregular = errors.New("not a regular file")
	errStub      = errors.New("a stub library of the CUDA toolkit, which only serves to link programs and cannot run")
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
	if _, err := regularFile(real); err != nil {
		return "", err
	}
	return real, nil
}

// regularFile returns the size of the file at path. Anything but a regular file
// is refused unopened: to open a pipe is to wait for its writer.
func regularFile(path string) (size int64, err error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return 0, reason(err)
	case info.IsDir():
		return 0, errDirectory
	case !info.Mode().IsRegular():
		return 0, errIrregular
	}
	return info.Size(), nil
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
