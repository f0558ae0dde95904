//go:build !linux

package ipc

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnsupported(t *testing.T) {
	_, err := Listen("socket", nil)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = Dial(t.Context(), "socket", nil)
	require.ErrorIs(t, err, errors.ErrUnsupported)
}
