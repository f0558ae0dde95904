package cudatest

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

func TestTableIsComplete(t *testing.T) {
	for version, missing := range map[int][]string{
		0:            nil,
		driver.Floor: {"cuCtxRecordEvent", "cuFuncGetParamInfo", "cuStreamGetId", "cuStreamWaitValue32_v2", "cuStreamWriteValue32_v2"},
		11080:        {"cuCtxRecordEvent", "cuFuncGetParamInfo", "cuStreamGetId"},
		12000:        {"cuCtxRecordEvent", "cuFuncGetParamInfo"},
		12040:        {"cuCtxRecordEvent"},
		12050:        nil,
	} {
		api := New(Config{DriverVersion: version}).API()
		require.ElementsMatch(t, missing, api.Missing, version)
		fields := reflect.ValueOf(*api)
		for _, f := range driver.Functions {
			require.False(t, fields.FieldByName(f.Field).IsNil(), f.Field)
		}
		require.Contains(t, api.Source, "simulated")
	}
	old := *New(Config{DriverVersion: 11020}).API()
	require.ErrorIs(t, old.Complete(), driver.ErrorCallRequiresNewerDriver)
}

func TestBeforeInit(t *testing.T) {
	api := New(Config{DriverVersion: 12020}).API()
	_, r := api.DeviceGetCount()
	require.Equal(t, driver.ErrorNotInitialized, r)
	require.Equal(t, driver.ErrorNotInitialized, api.StreamQuery(0))
	v, r := api.DriverGetVersion()
	require.Equal(t, driver.Success, r)
	require.EqualValues(t, 12020, v)
	require.Equal(t, driver.ErrorInvalidValue, api.Init(1))
	require.Equal(t, driver.ErrorNoDevice, New(Config{Devices: -1}).API().Init(0))
}

func TestDefaultStreamNeedsItsDevice(t *testing.T) {
	gpu := New(Config{Devices: 2})
	require.PanicsWithValue(t, "cudatest: handle 0 does not say which device's default stream is meant: use GPU.Default", func() { gpu.Run(Handle(0), ms) })
	require.Panics(t, func() { gpu.Default(2) })
	require.Panics(t, func() { gpu.Run(New(Config{}).Default(0), ms) })
	require.Panics(t, func() { gpu.Run(Handle(12345), ms) })
	New(Config{}).Run(Handle(0), ms)
}

// reports is a testing.TB as far as Check needs one.
type reports []string

func (*reports) Helper() {}
func (r *reports) Errorf(format string, args ...any) {
	*r = append(*r, fmt.Sprintf(format, args...))
}

func TestCheck(t *testing.T) {
	b := newBed(t, Config{})
	s, e, p := b.stream(0, 0), b.event(0, 0), b.mem(0, 10)
	h := b.pinned(20)
	for range 3 {
		require.Equal(t, driver.ErrorInvalidHandle, b.EventQuery(12345))
	}
	_, r := b.EventCreate(0)
	require.Equal(t, driver.ErrorInvalidContext, r)
	var got reports
	b.gpu.Check(&got)
	require.Len(t, got, 6)
	require.Regexp(t, fmt.Sprintf(`^leaked: stream %#x of device 0, made at bed_test.go:\d+$`, s), got[0])
	require.Regexp(t, fmt.Sprintf(`^leaked: event %#x of device 0, made at bed_test.go:\d+$`, e), got[1])
	require.Regexp(t, fmt.Sprintf(`^leaked: 20 bytes of pinned host memory at %p of device 0, made at`, h), got[2])
	require.Regexp(t, fmt.Sprintf(`^leaked: 10 bytes of device memory at %#x of device 0, made at`, p), got[3])
	require.Regexp(t, `^misuse: EventQuery: no event ever had the handle 0x3039, at gpu_test.go:\d+ \(3 times\)$`, got[4])
	require.Regexp(t, `^misuse: EventCreate: no context is current on the calling thread, at gpu_test.go:\d+$`, got[5])

	b.ok(b.StreamDestroy(s))
	b.ok(b.EventDestroy(e))
	b.ok(free(b, p))
	b.on(0, func() { b.ok(b.MemFreeHost(at(h))) })
	require.Equal(t, driver.ErrorInvalidHandle, b.EventDestroy(e))
	require.Equal(t, driver.ErrorInvalidHandle, b.StreamQuery(s))
	problems := b.gpu.Problems()
	require.Len(t, problems, 4, "nothing is leaked")
	require.Contains(t, problems[2], fmt.Sprintf("EventDestroy: event %#x was destroyed", e))
	require.Contains(t, problems[3], fmt.Sprintf("StreamQuery: stream %#x was destroyed", s))

	for i := range 1000 {
		b.EventQuery(driver.Event(i))
	}
	require.Len(t, b.gpu.Problems(), misuseLimit+1, "the list is bounded")
}

func TestReleasedContext(t *testing.T) {
	b := newBed(t, Config{})
	s, e := b.stream(0, 0), b.event(0, 0)
	b.on(0, func() {
		b.ok(b.DevicePrimaryCtxRelease(0))
		require.Equal(t, driver.ErrorInvalidContext, b.DevicePrimaryCtxRelease(0))
		require.Equal(t, driver.ErrorContextIsDestroyed, b.StreamQuery(s))
		_, r := b.EventCreate(0)
		require.Equal(t, driver.ErrorContextIsDestroyed, r)
		c, r := b.DevicePrimaryCtxRetain(0)
		b.ok(r)
		require.Equal(t, b.ctx[0], c)
		_, r = b.EventCreate(0)
		b.ok(r)
		require.Equal(t, driver.ErrorContextIsDestroyed, b.EventQuery(e), "of the earlier context")
	})
}

func TestDevices(t *testing.T) {
	b := newBed(t, Config{Devices: 2, Name: "Test", Memory: 1 << 20})
	seen := map[string]bool{}
	for d := range driver.Device(2) {
		name, r := b.DeviceGetName(d)
		b.ok(r)
		require.Equal(t, "Test", name)
		id, r := b.DeviceGetUUID(d)
		b.ok(r)
		bus, r := b.DeviceGetPCIBusID(d)
		b.ok(r)
		seen[id.String()], seen[bus] = true, true
		total, r := b.DeviceTotalMem(d)
		b.ok(r)
		require.EqualValues(t, 1<<20, total)
		v, r := b.DeviceGetAttribute(driver.AttributeUnifiedAddressing, d)
		b.ok(r)
		require.EqualValues(t, 1, v)
	}
	require.Len(t, seen, 4)
	_, r := b.DeviceGetAttribute(9999, 0)
	require.Equal(t, driver.ErrorInvalidValue, r)
	for _, d := range []int32{-1, 2} {
		_, r := b.DeviceGet(d)
		require.Equal(t, driver.ErrorInvalidDevice, r)
	}
}

// Handles of two GPUs of a program differ, so that mixing them up shows.
func TestHandlesOfTwoGPUsDiffer(t *testing.T) {
	seen := map[driver.Context]bool{}
	for range 2 {
		api := New(Config{}).API()
		require.Equal(t, driver.Success, api.Init(0))
		c, r := api.DevicePrimaryCtxRetain(0)
		require.Equal(t, driver.Success, r)
		require.False(t, seen[c])
		seen[c] = true
	}
}
