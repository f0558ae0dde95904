//go:build !nocuda && !(linux && (amd64 || arm64)) && !(windows && amd64)

package loader

import (
	"errors"
	"fmt"
	"runtime"
)

var errPlatform = fmt.Errorf("no CUDA driver can be loaded on %s/%s: NVIDIA's driver is supported on "+
	"linux/amd64, linux/arm64 and windows/amd64; package cudatest has a simulated GPU: %w",
	runtime.GOOS, runtime.GOARCH, errors.ErrUnsupported)

func openPath(string) (*Library, error) { return nil, errPlatform }

func openSystem() (*Library, error) { return nil, errPlatform }
