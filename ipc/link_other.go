//go:build !linux

package ipc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"github.com/purecuda/cuda"
)

const onLinuxOnly = "sessions between processes are there on linux only, and this is " + runtime.GOOS

func bind(op, _ string) (*net.UnixListener, os.FileInfo, error) {
	return nil, nil, &cuda.Error{Op: op, Err: errors.ErrUnsupported, Detail: onLinuxOnly}
}

func connect(context.Context, string) (*net.UnixConn, error) {
	return nil, fmt.Errorf("%w: %s", errors.ErrUnsupported, onLinuxOnly)
}

func newLink(*net.UnixConn) link { return nil }

func credentials(*net.UnixConn) (Credentials, error) { return Credentials{}, errors.ErrUnsupported }

func hungUp(error) bool { return false }

func duplicate(*os.File) (*os.File, error) { return nil, errors.ErrUnsupported }
