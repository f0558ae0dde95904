//go:build !linux

package ipc

import (
	"errors"
	"os"

	"github.com/purecuda/cuda"
)

// sharedMemory is memory that two processes share. There are no sessions here, so
// none is ever made.
type sharedMemory struct{ bytes []byte }

func newSharedFile(int) (*os.File, error) {
	return nil, &cuda.Error{Op: "shared memory", Err: errors.ErrUnsupported}
}

func mapShared(*os.File, int) (*sharedMemory, error) {
	return nil, &cuda.Error{Op: "shared memory", Err: errors.ErrUnsupported}
}

func (m *sharedMemory) close() error { return nil }
