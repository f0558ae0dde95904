package native

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/refs"
)

// Memory is an allocation. It is given back when its owner has closed it, no call and no
// graph uses it, and the streams that used it are done with their uses.
//
// Each use on a stream is noted after the work was enqueued, as the place to which the
// stream had come (see [place]), except where it needs no note: memory of a pool has a home,
// the stream in whose order it is freed, and freeing plain memory waits for its device.
type Memory struct {
	refs.Count
	Addr  driver.DevicePtr
	Dev   *Device
	kind  memoryKind
	home  *Stream // of pool memory
	host  unsafe.Pointer
	share *share // of memory that others have too

	mu     sync.Mutex
	users  atomic.Pointer[[]*user]  // replaced with mu held, and never changed
	onFree atomic.Pointer[func()]   // see AfterFree
	given  atomic.Pointer[[64]byte] // the handle that other processes have
}

// memoryKind says how memory is given back.
type memoryKind uint8

const (
	poolMemory       memoryKind = iota // cuMemFreeAsync, in the order of its home
	plainMemory                        // cuMemFree, which waits for the device
	pinnedMemory                       // cuMemFreeHost
	registeredMemory                   // cuMemHostUnregister
	importedMemory                     // with the last import of it
	unpooledMemory                     // cuMemFree, in the background: the device has no pools
	hostFuncMemory                     // a function that a graph calls: onFree
)

// user is a stream that uses memory, which holds the stream.
type user struct {
	s     *Stream
	place atomic.Uint64 // to which the stream had come after its last use
	// mark is recorded after each use on a stream that was made elsewhere: it may be gone
	// when the memory is freed.
	mark *Mark
}

func (m *Memory) String() string {
	what := "buffer"
	switch m.kind {
	case pinnedMemory:
		what = "host buffer"
	case registeredMemory:
		what = "registered memory"
	}
	return fmt.Sprintf("the %s at %#x of device %d", what, uint64(m.Addr), m.Dev.Index)
}

// OnDevice reports whether m is device memory.
func (m *Memory) OnDevice() bool { return m.host == nil }

// Pooled reports whether m is of a memory pool.
func (m *Memory) Pooled() bool { return m.kind == poolMemory }

func (m *Memory) live() *atomic.Int64 {
	switch {
	case m.kind == hostFuncMemory:
		return &m.Dev.Driver.Live.hostFuncs
	case m.host != nil:
		return &m.Dev.Driver.Live.HostBuffers
	}
	return &m.Dev.Driver.Live.Buffers
}

// AllocPlain allocates device memory (cuMemAlloc).
func (d *Device) AllocPlain(bytes uint64) (*Memory, error) {
	t, err := d.Open()
	if err != nil {
		return nil, err
	}
	at, r := t.QuietBound.MemAlloc(bytes)
	if r == driver.ErrorOutOfMemory {
		d.frees.settle()
		if p := d.pool.Load(); p != nil { // what it keeps for later is in the way now
			p.Trim(0)
		}
		at, r = t.QuietBound.MemAlloc(bytes)
	}
	if r != driver.Success {
		return nil, &Refusal{Code: r, Detail: fmt.Sprintf("%d bytes on device %d", bytes, d.Index)}
	}
	return d.collected(&Memory{Addr: at, Dev: d, kind: plainMemory}), nil
}

// collected has m closed by the garbage collector, if nobody else does.
func (d *Device) collected(m *Memory) *Memory {
	m.live().Add(1)
	runtime.SetFinalizer(m, (*Memory).forgotten)
	return m
}

// forgotten is the net under a forgotten Close. It runs on the goroutine of all of the
// program's finalizers, which must not wait.
func (m *Memory) forgotten() { m.Dev.forgotten("buffer", m.Close) }

// AllocHost allocates pinned memory (cuMemHostAlloc).
func (d *Device) AllocHost(bytes uint64, flags uint32) (*Memory, error) {
	t, err := d.Open()
	if err != nil {
		return nil, err
	}
	p, r := t.QuietBound.MemHostAlloc(bytes, flags)
	if r != driver.Success {
		return nil, r
	}
	d.Driver.Live.HostBuffers.Add(1)
	return &Memory{Addr: driver.HostPtr(p), Dev: d, kind: pinnedMemory, host: p}, nil
}

// RegisterHost pins memory that exists (cuMemHostRegister).
func (d *Device) RegisterHost(p unsafe.Pointer, bytes uint64) (*Memory, error) {
	t, err := d.Open()
	if err != nil {
		return nil, err
	}
	r := t.QuietBound.MemHostRegister(p, bytes, driver.MemHostRegisterPortable|driver.MemHostRegisterDeviceMap)
	if r != driver.Success {
		return nil, r
	}
	at, r := t.QuietBound.MemHostGetDevicePointer(p, 0)
	if r != driver.Success {
		t.QuietBound.MemHostUnregister(p)
		return nil, r
	}
	d.Driver.Live.HostBuffers.Add(1)
	return &Memory{Addr: at, Dev: d, kind: registeredMemory, host: p}, nil
}

// Host returns the pointer by which the host uses the memory.
func (m *Memory) Host() unsafe.Pointer { return m.host }

// used notes that work on s uses m. The caller is in s, has a reference to m, and has
// enqueued the work.
func (m *Memory) used(s *Stream) {
	if m.home != s && (m.kind != plainMemory || m.Dev != s.Dev) {
		m.usedAway(s)
	}
}

func (m *Memory) usedAway(s *Stream) {
	if m.home != nil && m.home.Same(s) {
		return // a wrapper of the home
	}
	if s.kind == kindExternal {
		m.usedOutside(s)
		return
	}
	p := s.place()
	u := m.user(s)
	if u == nil {
		m.mu.Lock()
		u = m.add(s)
		m.mu.Unlock()
	}
	u.advance(p)
}

// user returns the user for s, nil if there is none.
func (m *Memory) user(s *Stream) *user {
	for _, u := range m.list() {
		if u.s == s {
			return u
		}
	}
	return nil
}

// advance moves the place of u on, never back: others may have noted a later use.
func (u *user) advance(p place) {
	for {
		v := place(u.place.Load())
		if v.serial() == p.serial() && v >= p || u.place.CompareAndSwap(uint64(v), uint64(p)) {
			return
		}
	}
}

// usedOutside notes a use on a stream that was made elsewhere.
func (m *Memory) usedOutside(s *Stream) {
	if s.isCaptured() { // nobody here knows how long a graph of others uses it
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.add(s)
	old := u.mark
	n, err := s.Dev.events.take(s.Dev, s, driver.EventDisableTiming, nil)
	if err == nil {
		err = failed(s.work.EventRecord(n.event, s.Native))
	}
	u.mark = nil
	if err == nil {
		u.mark = &Mark{n: n, event: n.event, dev: s.Dev, on: s}
		u.mark.state.Store(dead | 1) // the user itself waits
		u.mark.last.Store(s.epoch | numbers)
	} else { // there is another try when the memory is closed
		m.Dev.Driver.OnCleanupError("record stream", err)
	}
	if old != nil {
		old.EndWait()
	}
}

// add returns the user for s. If it makes one, it drops those whose streams are closed and
// done, so that memory which lives long does not collect streams that came and went. The
// caller holds mu.
func (m *Memory) add(s *Stream) *user {
	if u := m.user(s); u != nil {
		return u
	}
	list := slices.DeleteFunc(slices.Clone(m.list()), func(u *user) bool {
		over := u.over(m.home)
		if over {
			u.release()
		}
		return over
	})
	u := &user{s: s}
	s.hold()
	list = append(list, u)
	m.users.Store(&list)
	return u
}

// over reports whether the stream of u was closed, has no more calls under way, which could
// be uses, and is done, or was joined by the home.
func (u *user) over(home *Stream) bool {
	switch {
	case !u.s.Closed() || !u.s.gate.Quiet(0):
		return false
	case home != nil && u.mark == nil && home.joined.after(place(u.place.Load())):
		return true
	}
	if u.mark != nil {
		done, _ := u.mark.Poll()
		return done
	}
	if u.s.kind == kindExternal || !u.s.tryEnterHeld() {
		return false
	}
	defer u.s.leave()
	return u.s.quiet.StreamQuery(u.s.Native) == driver.Success
}

// release gives back what u has.
func (u *user) release() {
	if m := u.mark; m != nil {
		m.EndWait()
	}
	u.s.release()
}

func (m *Memory) list() []*user {
	if p := m.users.Load(); p != nil {
		return *p
	}
	return nil
}

// RecordStream notes a use of m on s that this package did not enqueue.
func (m *Memory) RecordStream(s *Stream) error {
	k, _, err := s.begin(m, nil)
	if err != nil {
		return err
	}
	return s.finish(k, m, nil, driver.Success)
}

// Close gives the memory back when nothing uses it any more.
func (m *Memory) Close() error {
	first, last := m.Count.Close()
	if first && m.kind != pinnedMemory && m.kind != registeredMemory {
		runtime.SetFinalizer(m, nil)
	}
	if last {
		return m.free()
	}
	return nil
}

// leave gives a reference back.
func (m *Memory) leave() {
	if m.Release() {
		m.Dev.Driver.closeFailed("buffer", m.free())
	}
}

// free gives the memory back, or leaves it to the device's frees if streams still use it.
func (m *Memory) free() error {
	if m.kind == poolMemory && m.users.Load() == nil && m.home.enterHeld() { // most memory
		err := m.giveBack()
		m.home.leave()
		m.home.release()
		return err
	}
	f := &pendingFree{m: m}
	for _, u := range m.list() {
		if u.mark == nil && m.home != nil && m.home.joined.after(place(u.place.Load())) {
			u.release()
		} else {
			f.users = append(f.users, u)
		}
	}
	m.users.Store(nil)
	switch m.kind {
	case poolMemory, pinnedMemory, hostFuncMemory:
		return m.Dev.frees.free(f)
	case unpooledMemory:
		m.Dev.frees.add(f)
		f.home.reaper.add(f.retry)
		return nil
	}
	return f.wait() // the caller wants it back
}

// giveBack calls the driver. The streams that used the memory are done, or, of pool memory,
// have been joined by its home, which the caller is in. Except for pool memory it blocks
// until the device is idle.
func (m *Memory) giveBack() error {
	t := m.Dev.mustOpen()
	var r driver.Result
	switch m.kind {
	case poolMemory:
		r = m.home.quiet.MemFreeAsync(m.Addr, m.home.Native)
		m.home.flushes.later()
	case plainMemory, unpooledMemory:
		m.Dev.Driver.sharing.takeBack(m)
		r = m.Dev.blocking(func() driver.Result { return t.QuietBound.MemFree(m.Addr) })
	case pinnedMemory:
		r = m.Dev.blocking(func() driver.Result { return t.QuietBound.MemFreeHost(m.host) })
	case registeredMemory:
		r = m.Dev.blocking(func() driver.Result { return t.QuietBound.MemHostUnregister(m.host) })
	case importedMemory:
		r = m.share.destroy()
	}
	m.live().Add(-1)
	if m.kind != poolMemory {
		if f := m.onFree.Swap(&freed); f != nil {
			(*f)()
		}
	}
	return failed(ignoreExit(r))
}

// freed stands for the function of AfterFree once the memory is free.
var freed = func() {}

// AfterFree has f called when the memory, which is not of a pool, was given back, at once if
// it was.
func (m *Memory) AfterFree(f func()) {
	for {
		old := m.onFree.Load()
		if old == &freed {
			f()
			return
		}
		if m.onFree.CompareAndSwap(old, &f) {
			return
		}
	}
}
