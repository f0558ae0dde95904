//go:build nocuda

package loader

import (
	"errors"
	"fmt"
)

var errNoCUDA = fmt.Errorf("this program was built with the tag nocuda and cannot load a driver: "+
	"rebuild it without -tags nocuda, or use a simulated GPU (package cudatest): %w", errors.ErrUnsupported)

func openPath(string) (*Library, error) { return nil, errNoCUDA }

func openSystem() (*Library, error) { return nil, errNoCUDA }
