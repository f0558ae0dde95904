package cuda_test

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/testgpu"
)

// every does each kind of call that the driver's functions are fused for.
func every(t *testing.T, d *cuda.Device) {
	t.Helper()
	s, other := testgpu.NewStream(t, d, nil), testgpu.NewStream(t, d, nil)
	e := testgpu.NewEvent(t, nil)
	require.NoError(t, e.Record(d.DefaultStream()))
	require.NoError(t, e.Wait(d.DefaultStream()))
	_, err := d.DefaultStream().Query()
	require.NoError(t, err)
	require.NoError(t, other.WaitStream(s))
	require.NoError(t, d.DefaultStream().WaitStream(s))
	require.NoError(t, s.WaitStream(d.DefaultStream()))
}

// What wants a context finds it, and the thread has its own again afterwards.
func TestFusedCallsLeaveTheContext(t *testing.T) {
	for name, open := range map[string]func(testing.TB) *cuda.Driver{"library": libraryDriver, "real": testgpu.RealDriver} {
		t.Run(name, func(t *testing.T) {
			d, err := open(t).OpenDevice(0)
			require.NoError(t, err)
			api := d.Driver().API()
			require.NotNil(t, api.Fused)
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			before, r := api.CtxGetCurrent()
			require.Equal(t, driver.Success, r)
			every(t, d)
			after, r := api.CtxGetCurrent()
			require.Equal(t, driver.Success, r)
			require.Equal(t, before, after)
		})
	}
}

// A wrapper of a function sees all calls of it, also those that are otherwise fused
// with others, and so do wrappers of the functions that make a context current.
func TestWrappersSeeWhatIsFused(t *testing.T) {
	api := *libraryDriver(t).API()
	require.NotNil(t, api.Fused)
	require.NotSame(t, libraryDriver(t).API(), api.Fused.Of, "what is replaced in place would replace both")
	var mu sync.Mutex
	seen := map[string]int{}
	note := func(name string) {
		mu.Lock()
		defer mu.Unlock()
		seen[name]++
	}
	record, push := api.EventRecord, api.CtxPushCurrent
	api.EventRecord = func(e driver.Event, s driver.Stream) driver.Result {
		note("record")
		return record(e, s)
	}
	api.CtxPushCurrent = func(c driver.Context) driver.Result {
		note("push")
		return push(c)
	}
	drv, err := cuda.OpenDriver(&api)
	require.NoError(t, err)
	require.Nil(t, drv.API().Fused)
	require.NotNil(t, api.Fused, "the caller's own table was changed")
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	every(t, d)
	require.Equal(t, 4, seen["record"])
	require.GreaterOrEqual(t, seen["push"], 5)
}
