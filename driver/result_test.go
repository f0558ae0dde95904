package driver_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

func ExampleResult() {
	var err error = driver.Result(600)
	fmt.Println(err)
	fmt.Println(errors.Is(err, driver.ErrorNotReady))
	// Output:
	// CUDA_ERROR_NOT_READY (600): work enqueued before is not finished
	// true
}

func TestResults(t *testing.T) {
	seen := map[string]bool{}
	for r := driver.Result(0); r < 1000; r++ {
		require.Contains(t, r.Error(), fmt.Sprint(int32(r)))
		if name := r.Name(); name != "CUDA_ERROR" {
			require.True(t, strings.HasPrefix(name, "CUDA_"), name)
			require.False(t, seen[name], name)
			seen[name] = true
		}
	}
	require.Len(t, seen, 103)
	require.NoError(t, driver.Success.Err())
	require.Equal(t, driver.ErrorNoDevice, driver.ErrorNoDevice.Err())
	require.ErrorIs(t, driver.ErrorCallRequiresNewerDriver, errors.ErrUnsupported)
	require.ErrorIs(t, driver.ErrorNotSupported, errors.ErrUnsupported)
	require.NotErrorIs(t, driver.ErrorInvalidValue, errors.ErrUnsupported)
	require.True(t, driver.ErrorLaunchFailed.Sticky())
	require.False(t, driver.ErrorNotReady.Sticky())
	require.Contains(t, driver.Result(-5).Error(), "does not know")
}

func TestCompleteFillsEveryField(t *testing.T) {
	var api driver.API
	err := api.Complete()
	var missing *driver.MissingError
	require.ErrorAs(t, err, &missing)
	require.Len(t, missing.Symbols, len(driver.Functions)-len(api.Missing))
	require.NotEmpty(t, api.Missing)
	require.Equal(t, driver.ErrorCallRequiresNewerDriver, api.StreamQuery(0))
	_, r := api.StreamGetID(0)
	require.Equal(t, driver.ErrorCallRequiresNewerDriver, r)

	missingBefore := api.Missing
	require.NoError(t, api.Complete(), "completed tables stay as they are")
	require.Equal(t, missingBefore, api.Missing)
}

func TestUUIDString(t *testing.T) {
	id := driver.UUID{0x8a, 0x14, 0xb2, 0x30, 0x7f, 0xb2, 0xe3, 0x65, 0x6d, 0xa1, 0xcf, 0x3f, 0xaf, 0xb9, 0x80, 0x17}
	require.Equal(t, "GPU-8a14b230-7fb2-e365-6da1-cf3fafb98017", id.String())
}
