package cuda_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/internal/kernels"
)

// A process in which a kernel has trapped cannot use the device any more, so tests
// of that on a real device run in a process of their own.
const trapVariable = "PURECUDA_TEST_TRAP"

// inAnotherProcess runs a test of which trapped is the body.
func inAnotherProcess(t *testing.T, test string) {
	realDriver(t)
	child := startChild(t, nil, trapVariable+"=1", os.Args[0], "-test.run=^"+test+"$", "-test.v")
	require.Equal(t, "told", child.says())
	child.end()
}

// trapped calls f with a device and a function that makes a kernel on a stream trap.
func trapped(t *testing.T, f func(t *testing.T, d *cuda.Device, fail func(*cuda.Stream))) {
	if os.Getenv(trapVariable) == "" {
		t.Skip("runs in a process of its own")
	}
	d, err := realDriver(t).OpenDevice(0)
	require.NoError(t, err)
	m, err := d.LoadModule([]byte(kernels.PTX)) // which cannot be unloaded afterwards
	require.NoError(t, err)
	trap, err := m.Kernel("purecuda_trap")
	require.NoError(t, err)
	f(t, d, func(s *cuda.Stream) { require.NoError(t, trap.Launch(s, cuda.Grid1D(1, 1))) })
	if !t.Failed() {
		fmt.Println("child: told")
	}
}
