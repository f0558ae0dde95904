//go:build !linux

package proc

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/purecuda/cuda/driver"
)

// Find is there on Linux only.
func Find(int) (driver.Process, error) { return driver.Process{}, unsupported("found") }

// Watch is there on Linux only.
func Watch(driver.Process, func(), func()) (stop func(), err error) {
	return nil, unsupported("watched")
}

func unsupported(what string) error {
	return fmt.Errorf("processes can be %s on Linux only, and this is %s: %w", what, runtime.GOOS, errors.ErrUnsupported)
}
