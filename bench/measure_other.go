//go:build !(linux && (amd64 || arm64) && !nocuda && !purecuda_syscalln)

package main

import (
	"errors"
	"fmt"
	"io"
)

func measure(options, io.Writer) (*results, error) {
	return nil, fmt.Errorf("measuring is for linux on amd64 and arm64, built without tags: %w", errors.ErrUnsupported)
}

func child(string, io.Writer, io.Writer) int { return 2 }
