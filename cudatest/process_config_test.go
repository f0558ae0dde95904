package cudatest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

func TestVisibleDevices(t *testing.T) {
	gpu := New(Config{Devices: 3})
	all := newBedOn(t, gpu, gpu.API())
	some := newBedOn(t, gpu, gpu.NewProcessWith(ProcessConfig{Devices: []int{2, 0}}).API())
	require.Len(t, some.ctx, 2)

	for here, there := range []driver.Device{2, 0} {
		here := driver.Device(here)
		d, r := some.DeviceGet(int32(here))
		some.ok(r)
		id, r := some.DeviceGetUUID(d)
		some.ok(r)
		same, r := all.DeviceGetUUID(there)
		all.ok(r)
		require.Equal(t, same, id)
		bus, r := some.DeviceGetPCIBusID(d)
		some.ok(r)
		require.Equal(t, fmt.Sprintf("0000:%02X:00.0", there+1), bus)
		some.on(int(here), func() {
			current, r := some.CtxGetDevice()
			some.ok(r)
			require.Equal(t, d, current)
			before, _, r := some.MemGetInfo()
			some.ok(r)
			p := all.mem(int(there), 1<<20)
			after, _, r := some.MemGetInfo()
			some.ok(r)
			require.EqualValues(t, 1<<20, before-after, "the same device's memory")
			all.on(int(there), func() { all.ok(all.MemFree(p)) })
		})
		useMemory(some, int(here))
	}

	_, r := some.DeviceGet(2)
	require.Equal(t, driver.ErrorInvalidDevice, r)
	_, r = some.DevicePrimaryCtxRetain(2)
	require.Equal(t, driver.ErrorInvalidDevice, r)
	_, r = some.DeviceCanAccessPeer(0, 2)
	require.Equal(t, driver.ErrorInvalidDevice, r)

	// Memory of device 1 cannot be opened where it is not seen.
	p := all.mem(1, 64)
	e := all.event(1, shared)
	all.on(1, func() {
		mem, r := all.IPCGetMemHandle(p)
		all.ok(r)
		ev, r := all.IPCGetEventHandle(e)
		all.ok(r)
		some.on(0, func() {
			_, r := some.IPCOpenMemHandle(mem, driver.IPCMemLazyEnablePeerAccess)
			require.Equal(t, driver.ErrorInvalidValue, r)
			_, r = some.IPCOpenEventHandle(ev)
			require.Equal(t, driver.ErrorMapFailed, r)
		})
	})

	none := gpu.NewProcessWith(ProcessConfig{Devices: []int{}}).API()
	require.Equal(t, driver.ErrorNoDevice, none.Init(0))
}

// useMemory calls what finds one of two devices by its number.
func useMemory(b *bed, device int) {
	s := b.stream(device, driver.StreamNonBlocking)
	pool, r := b.DeviceGetDefaultMemPool(driver.Device(device))
	b.ok(r)
	p, r := b.MemAllocFromPoolAsync(64, pool, s)
	b.ok(r)
	b.ok(b.MemsetD8Async(p, 5, 64, s))
	b.ok(b.MemPoolSetAccess(pool, driver.MemAccess{
		LocationType: driver.MemLocationDevice, LocationID: int32(1 - device), Flags: driver.MemAccessReadWrite,
	}, 1))
	far := b.stream(1-device, driver.StreamNonBlocking)
	b.ok(b.StreamSynchronize(s))
	b.ok(b.MemsetD8Async(p, 6, 32, far))
	b.ok(b.StreamSynchronize(far))
	q := b.mem(1-device, 64)
	b.ok(b.MemcpyPeerAsync(q, b.ctx[1-device], p, b.ctx[device], 64, s))
	host := b.pinned(64)
	b.ok(b.MemcpyDtoHAsync(at(host), q, 64, s))
	b.ok(b.StreamSynchronize(s))
	require.EqualValues(b.t, 6, host[31])
	require.EqualValues(b.t, 5, host[32])
}

// A process shares its device with another that numbers it differently.
func TestSharingByAnotherNumber(t *testing.T) {
	gpu := New(Config{Devices: 2})
	a := newBedOn(t, gpu, gpu.API())
	b := newBedOn(t, gpu, gpu.NewProcessWith(ProcessConfig{Devices: []int{1}, Namespace: 7}).API())
	s, e, p := a.stream(1, driver.StreamNonBlocking), a.event(1, shared), a.mem(1, 64)
	a.ok(a.MemsetD8Async(p, 9, 64, s))
	a.ok(a.EventRecord(e, s))
	a.on(1, func() {
		ev, r := a.IPCGetEventHandle(e)
		a.ok(r)
		mem, r := a.IPCGetMemHandle(p)
		a.ok(r)
		b.on(0, func() {
			u, host := b.stream(0, driver.StreamNonBlocking), b.pinned(64)
			opened, r := b.IPCOpenEventHandle(ev)
			b.ok(r)
			q, r := b.IPCOpenMemHandle(mem, driver.IPCMemLazyEnablePeerAccess)
			b.ok(r)
			b.ok(b.StreamWaitEvent(u, opened, 0))
			b.ok(b.MemcpyDtoHAsync(at(host), q, 64, u))
			b.ok(b.StreamSynchronize(u))
			require.EqualValues(t, 9, host[63])
		})
	})
}

func TestOtherUser(t *testing.T) {
	gpu := New(Config{})
	ours, theirs := newBedOn(t, gpu, gpu.API()), newBedOn(t, gpu, gpu.NewProcessWith(ProcessConfig{OtherUser: true}).API())
	for _, c := range []struct {
		name     string
		from, to *bed
	}{{"from ours", ours, theirs}, {"from theirs", theirs, ours}} {
		e, p := c.from.event(0, shared), c.from.mem(0, 64)
		c.from.on(0, func() {
			ev, r := c.from.IPCGetEventHandle(e)
			c.from.ok(r)
			mem, r := c.from.IPCGetMemHandle(p)
			c.from.ok(r)
			_, r = c.from.IPCOpenEventHandle(ev)
			require.Equal(t, driver.ErrorInvalidContext, r, "%s: its own", c.name)
			c.to.on(0, func() {
				_, r := c.to.IPCOpenEventHandle(ev)
				require.Equal(t, driver.ErrorMapFailed, r, c.name)
				q, r := c.to.IPCOpenMemHandle(mem, 0)
				require.Equal(t, driver.Success, r, c.name)
				c.to.ok(c.to.IPCCloseMemHandle(q))
			})
		})
	}
	require.Empty(t, misuses(gpu))
	send(theirs, newBedOn(t, gpu, gpu.NewProcessWith(ProcessConfig{OtherUser: true}).API()), theirs.event(0, shared))
}

func TestConfigsWithoutSense(t *testing.T) {
	gpu := New(Config{Devices: 2})
	gpu.NewProcessWith(ProcessConfig{PID: 1}).Kill()
	gpu.NewProcessWith(ProcessConfig{PID: 5, Namespace: 2})
	half := gpu.NewProcessWith(ProcessConfig{PID: 6})
	half.BeginKill()
	for _, c := range []struct {
		config ProcessConfig
		text   string // empty: it has sense
	}{
		{ProcessConfig{Devices: []int{2}}, "cudatest: a process that sees device 2: the machine has 2, counted from 0"},
		{ProcessConfig{Devices: []int{-1}}, "cudatest: a process that sees device -1: the machine has 2, counted from 0"},
		{ProcessConfig{Devices: []int{1, 0, 1}}, "cudatest: a process that sees device 1 twice"},
		{ProcessConfig{PID: -1}, "cudatest: a process with the PID -1"},
		{ProcessConfig{PID: 1001}, "cudatest: a process with the PID 1001, which a living process of the namespace 1 has"},
		{ProcessConfig{PID: 6}, "cudatest: a process with the PID 6, which a living process of the namespace 1 has"},
		{ProcessConfig{PID: 5, Namespace: 2}, "cudatest: a process with the PID 5, which a living process of the namespace 2 has"},
		{ProcessConfig{PID: 1}, ""},
		{ProcessConfig{PID: 5}, ""},
	} {
		if c.text == "" {
			require.NotNil(t, gpu.NewProcessWith(c.config))
			continue
		}
		require.PanicsWithValue(t, c.text, func() { gpu.NewProcessWith(c.config) })
	}
}

// misuses returns the problems that are no leaks.
func misuses(gpu *GPU) (list []string) {
	for _, p := range gpu.procs {
		list = append(list, p.misuses.list()...)
	}
	return list
}
