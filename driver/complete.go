package driver

import (
	"fmt"
	"strings"
)

// Function describes one entry point of the table.
type Function struct {
	Field  string // the field of [API]
	Symbol string // the exported symbol
	Else   string // the symbol to take where Symbol is missing; may be empty
	Since  int    // the CUDA version that brought it
}

// Required reports whether every supported driver has the function.
func (f Function) Required() bool { return f.Since <= Floor || f.Else != "" }

// MissingError reports the required functions that a table lacks: the driver
// is older than [Floor], or the library is not a CUDA driver.
type MissingError struct {
	Source  string
	Symbols []string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s lacks what every CUDA driver since %d.%d has: %s; install a newer NVIDIA driver",
		e.Source, Floor/1000, Floor%1000/10, strings.Join(e.Symbols, ", "))
}

// Unwrap makes a MissingError match [ErrorCallRequiresNewerDriver] and
// errors.ErrUnsupported.
func (e *MissingError) Unwrap() error { return ErrorCallRequiresNewerDriver }

// Complete makes every field of a callable: fields of optional functions that
// are nil get a stub that answers [ErrorCallRequiresNewerDriver], and their
// symbols are added to a.Missing. It returns a [*MissingError] that names all
// required functions that are nil. It takes [Fused] away where a function was
// replaced. Completing a complete table changes nothing.
func (a *API) Complete() error {
	missing := a.fill()
	a.Missing = a.Missing[:len(a.Missing):len(a.Missing)] // a copy of the table may share it
	var required []string
	for _, f := range missing {
		if f.Required() {
			required = append(required, f.Symbol)
		} else {
			a.Missing = append(a.Missing, f.Symbol)
		}
	}
	if required != nil {
		source := a.Source
		if source == "" {
			source = "the driver table"
		}
		return &MissingError{Source: source, Symbols: required}
	}
	a.Fused = a.fused()
	return nil
}
