// Package proc tells the operating system's processes apart, and says when one ends.
// Only Linux's: elsewhere all of its functions answer an error that matches
// [errors.ErrUnsupported].
package proc

import (
	"io/fs"

	"github.com/purecuda/cuda/driver"
)

// Processes are those of the operating system.
var Processes = &driver.Processes{Find: Find, Watch: Watch}

// notFound says that there is no such process.
type notFound string

func (e notFound) Error() string        { return string(e) }
func (e notFound) Is(target error) bool { return target == fs.ErrNotExist }
