package loader

import (
	"errors"
	"strings"
)

// ErrNotFound is matched by the error for not finding a usable driver library.
var ErrNotFound = errors.New("no usable CUDA driver library")

// Candidate is one place where a driver library was looked for.
type Candidate struct {
	Name string // a file's path, or a name for the system's loader
	Err  error  // why it is not the library
}

// NotFoundError says where a driver library was looked for and what was wrong
// there. It matches [ErrNotFound] and each candidate's error.
type NotFoundError struct {
	Candidates []Candidate
}

func (e *NotFoundError) Error() string {
	var b strings.Builder
	b.WriteString(ErrNotFound.Error())
	if len(e.Candidates) == 1 {
		c := e.Candidates[0]
		return b.String() + ": " + c.Name + ": " + c.Err.Error()
	}
	b.WriteString(":")
	for _, c := range e.Candidates {
		b.WriteString("\n\t" + c.Name + ": " + c.Err.Error())
	}
	b.WriteString("\n" + advice)
	return b.String()
}

// Unwrap returns [ErrNotFound] and the candidates' errors.
func (e *NotFoundError) Unwrap() []error {
	errs := []error{ErrNotFound}
	for _, c := range e.Candidates {
		errs = append(errs, c.Err)
	}
	return errs
}

const advice = "Install the NVIDIA driver; in a container, start it through the NVIDIA Container Toolkit " +
	"(docker run --gpus all); or name the library in Options.Library."
