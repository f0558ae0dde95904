package native

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/refs"
)

// begin admits work on s that uses a and b, which may be nil, and returns the functions to
// enqueue it with. It is the slow way: the calls that are made often do without it where
// nothing is special. Unless it fails, finish ends the work.
func (s *Stream) begin(a, b *Memory) (k *Capture, api *driver.API, err error) {
	if err := s.acquire(a); err != nil {
		return nil, nil, err
	}
	if err = s.acquire(b); err == nil {
		if k, err = s.enter(); err == nil {
			return k, s.reaching(a, b), nil
		}
		leave(b)
	}
	leave(a)
	return nil, nil, err
}

// acquire takes a reference to m, unless that is nil, for work on s.
func (s *Stream) acquire(m *Memory) error {
	switch {
	case m == nil:
		return nil
	case m.Dev.Driver != s.Dev.Driver:
		return errTwoDrivers
	case !m.Acquire():
		return closedError(m.String())
	}
	return nil
}

func leave(m *Memory) {
	if m != nil {
		m.leave()
	}
}

// reaching returns the functions for work on s that uses a and b. If one is from a pool of
// another device, the driver looks at the calling thread's context to see whether it can be
// reached. A default stream is found by that context, so it cannot be another's.
func (s *Stream) reaching(a, b *Memory) *driver.API {
	for _, m := range [...]*Memory{a, b} {
		if m != nil && m.kind == poolMemory && m.Dev != s.Dev && s.kind != kindDefault {
			return m.Dev.mustOpen().Bound
		}
	}
	return s.work
}

// finish ends work that begin admitted and the driver has answered.
func (s *Stream) finish(k *Capture, a, b *Memory, r driver.Result) error {
	var err error
	if r != driver.Success {
		err = s.unreachable(r, a, b)
	} else {
		s.note(k, a)
		s.note(k, b)
	}
	s.exit(k)
	leave(b)
	leave(a)
	return err
}

// note notes that work on s, in a capture unless k is nil, uses m.
func (s *Stream) note(k *Capture, m *Memory) {
	switch {
	case m == nil:
	case k != nil:
		k.held.keep(m)
	default:
		m.used(s)
	}
}

// unreachable explains why the driver refuses memory of another device.
func (s *Stream) unreachable(r driver.Result, a, b *Memory) error {
	for _, m := range [...]*Memory{a, b} {
		if r != driver.ErrorInvalidValue || m == nil || m.Dev == s.Dev || !m.OnDevice() {
			continue
		}
		detail := fmt.Sprintf("device %d has no access to the memory of device %d: see EnablePeerAccess", s.Dev.Index, m.Dev.Index)
		if s.kind == kindDefault && m.kind == poolMemory {
			detail = fmt.Sprintf("a default stream cannot reach pool memory of another device, device %d: take a created stream", m.Dev.Index)
		}
		return &Refusal{Code: r, Detail: detail}
	}
	return r
}

// Copy enqueues a copy (cuMemcpyAsync; between two devices cuMemcpyPeerAsync).
func (s *Stream) Copy(to, from *Memory, toAt, fromAt driver.DevicePtr, bytes uint64) error {
	if to.Dev != s.Dev || from.Dev != s.Dev || !to.Acquire() {
		return s.copySlow(to, from, toAt, fromAt, bytes)
	}
	if !from.Acquire() {
		to.leave()
		return s.copySlow(to, from, toAt, fromAt, bytes)
	}
	if !s.gate.Enter().Clear() {
		s.leave()
		from.leave()
		to.leave()
		return s.copySlow(to, from, toAt, fromAt, bytes)
	}
	r := s.work.MemcpyAsync(toAt, fromAt, bytes, s.Native)
	to.used(s)
	from.used(s)
	s.leave()
	from.leave()
	to.leave()
	if r != driver.Success {
		return r
	}
	return nil
}

func (s *Stream) copySlow(to, from *Memory, toAt, fromAt driver.DevicePtr, bytes uint64) error {
	k, api, err := s.begin(to, from)
	if err != nil {
		return err
	}
	var r driver.Result
	if to.Dev == from.Dev || !to.OnDevice() || !from.OnDevice() || k != nil {
		r = api.MemcpyAsync(toAt, fromAt, bytes, s.Native)
	} else {
		// The driver is told both devices: it does not find out the one of pool memory
		// without access to it. It cannot do this in a capture.
		r = s.work.MemcpyPeerAsync(toAt, to.Dev.mustOpen().Context, fromAt, from.Dev.mustOpen().Context, bytes, s.Native)
	}
	return s.finish(k, to, from, r)
}

// Copy2D enqueues a copy of rows (cuMemcpy2DAsync).
func (s *Stream) Copy2D(to, from *Memory, c driver.Memcpy2D) error {
	k, api, err := s.begin(to, from)
	if err != nil {
		return err
	}
	return s.finish(k, to, from, api.Memcpy2DAsync(c, s.Native))
}

// Fill enqueues the setting of n elements of 1, 2 or 4 bytes to v (cuMemsetD8Async, D16,
// D32).
func (s *Stream) Fill(m *Memory, at driver.DevicePtr, size uintptr, v uint32, n uint64) error {
	k, api, err := s.begin(m, nil)
	if err != nil {
		return err
	}
	var r driver.Result
	switch size {
	case 1:
		r = api.MemsetD8Async(at, uint8(v), n, s.Native)
	case 2:
		r = api.MemsetD16Async(at, uint16(v), n, s.Native)
	default:
		r = api.MemsetD32Async(at, v, n, s.Native)
	}
	return s.finish(k, m, nil, r)
}

// WaitValue makes the stream wait for a word of memory (cuStreamWaitValue32).
func (s *Stream) WaitValue(m *Memory, at driver.DevicePtr, v uint32) error {
	k, api, err := s.beginValue(m)
	if err != nil {
		return err
	}
	return s.finishValue(k, m, api.StreamWaitValue32(s.Native, at, v, driver.StreamWaitValueGEQ))
}

// WriteValue makes the stream write a word of memory (cuStreamWriteValue32).
func (s *Stream) WriteValue(m *Memory, at driver.DevicePtr, v uint32) error {
	k, api, err := s.beginValue(m)
	if err != nil {
		return err
	}
	return s.finishValue(k, m, api.StreamWriteValue32(s.Native, at, v, 0))
}

func (s *Stream) beginValue(m *Memory) (*Capture, *driver.API, error) {
	if m.kind == poolMemory {
		return nil, nil, &Refusal{Err: ErrInvalid, Detail: "the driver takes no memory of AllocAsync for this; take it from Alloc or AllocHost"}
	}
	return s.begin(m, nil)
}

func (s *Stream) finishValue(k *Capture, m *Memory, r driver.Result) error {
	err := s.finish(k, m, nil, r)
	if r == driver.ErrorNotSupported || r == driver.ErrorCallRequiresNewerDriver {
		return &Refusal{Err: errors.ErrUnsupported, Code: r, Detail: "the device has no memory operations for streams"}
	}
	return err
}

// Module is code on a device.
type Module struct {
	refs.Count
	Dev    *Device
	Native driver.Module
}

// LoadModule loads an image (cuModuleLoadDataEx).
func (d *Device) LoadModule(image unsafe.Pointer, count uint32, options, values unsafe.Pointer) (*Module, error) {
	t, err := d.Open()
	if err != nil {
		return nil, err
	}
	native, r := t.QuietBound.ModuleLoadDataEx(image, count, options, values)
	if r != driver.Success {
		return nil, r
	}
	d.Driver.Live.Modules.Add(1)
	return &Module{Dev: d, Native: native}, nil
}

// Enter takes a reference, which Leave gives back.
func (m *Module) Enter() error {
	if !m.Acquire() {
		return closedError("the module")
	}
	return nil
}

// Leave ends a call.
func (m *Module) Leave() { m.leave() }

// API returns functions for the module's device.
func (m *Module) API() *driver.API { return m.Dev.mustOpen().QuietBound }

// Close unloads the module when no call and no graph uses it.
func (m *Module) Close() error {
	if _, last := m.Count.Close(); last {
		return m.unload()
	}
	return nil
}

// Forgotten: see Graph.
func (m *Module) Forgotten() { m.Dev.forgotten("module", m.Close) }

func (m *Module) leave() {
	if m.Release() {
		m.Dev.Driver.closeFailed("module", m.unload())
	}
}

func (m *Module) unload() error {
	m.Dev.Driver.Live.Modules.Add(-1)
	return failed(ignoreExit(m.Dev.blocking(func() driver.Result { return m.Dev.mustOpen().QuietBound.ModuleUnload(m.Native) })))
}

// Shape is the shape of a launch.
type Shape struct {
	Grid, Block [3]uint32
	Shared      uint32
	Cooperative bool
}

// ClosedArgument is the error of a launch with memory that is closed, by its index.
type ClosedArgument struct{ Index int }

func (e *ClosedArgument) Error() string { return "memory is closed" }

// Launch enqueues a kernel of the module (cuLaunchKernel). params are its parameters and
// memory what they point to.
func (m *Module) Launch(s *Stream, fn driver.Func, n *Shape, params unsafe.Pointer, memory []*Memory) error {
	if m.Dev != s.Dev {
		if m.Dev.Driver != s.Dev.Driver {
			return errTwoDrivers
		}
		return ErrDeviceMismatch
	}
	if !m.Acquire() {
		return closedError("the module")
	}
	held := 0
	for held < len(memory) && memory[held].Acquire() {
		held++
	}
	var err error
	if held < len(memory) {
		err = &ClosedArgument{held}
	} else if w := s.gate.Enter(); !w.Clear() || n.Cooperative {
		err = m.launchSlow(s, w, fn, n, params, memory)
	} else {
		r := s.work.LaunchKernel(fn, n.Grid[0], n.Grid[1], n.Grid[2], n.Block[0], n.Block[1], n.Block[2],
			n.Shared, s.Native, params, nil)
		for _, x := range memory {
			x.used(s)
		}
		s.flushes.later()
		s.leave()
		if r != driver.Success {
			err = r
		}
	}
	for _, x := range memory[:held] {
		x.leave()
	}
	m.leave()
	runtime.KeepAlive(params)
	return err
}

func (m *Module) launchSlow(s *Stream, w refs.Word, fn driver.Func, n *Shape, params unsafe.Pointer, memory []*Memory) error {
	_, k, err := s.admit(w, false)
	if err != nil {
		return err
	}
	defer s.exit(k)
	var r driver.Result
	if n.Cooperative {
		r = s.work.LaunchCooperativeKernel(fn, n.Grid[0], n.Grid[1], n.Grid[2], n.Block[0], n.Block[1], n.Block[2],
			n.Shared, s.Native, params)
	} else {
		r = s.work.LaunchKernel(fn, n.Grid[0], n.Grid[1], n.Grid[2], n.Block[0], n.Block[1], n.Block[2],
			n.Shared, s.Native, params, nil)
	}
	if r != driver.Success {
		return r
	}
	if k != nil {
		k.held.keepModule(m)
	}
	s.flushes.later()
	for _, x := range memory {
		s.note(k, x)
	}
	return nil
}
