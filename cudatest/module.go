package cudatest

import (
	"unsafe"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/callsite"
)

// module is a loaded image.
type module struct {
	ctx    *context
	handle driver.Module
	ptx    *ptxModule           // nil for an image of machine code
	funcs  map[string]*function // those that were asked for
	made   callsite.Site
}

const (
	moduleBase uint64 = 0x59d0_2000_0000
	moduleStep uint64 = 0x100
)

// module finds the module of a handle. fn names the caller.
func (p *Process) module(fn string, h driver.Module) (*module, driver.Result) {
	if r := p.ready(); r != driver.Success {
		return nil, r
	}
	m := p.modules[h]
	if m == nil {
		p.badHandle(fn, "module", uint64(h), moduleBase, moduleStep, p.gpu.modules)
		return nil, driver.ErrorInvalidHandle
	}
	if m.ctx.destroyed {
		return nil, driver.ErrorContextIsDestroyed
	}
	return m, driver.Success
}

// moduleLoadDataEx waits until the device is idle, as the real one does.
func (p *Process) moduleLoadDataEx(image unsafe.Pointer, count uint32, options, values unsafe.Pointer) (driver.Module, driver.Result) {
	g := p.gpu
	g.mu.Lock()
	defer g.mu.Unlock()
	c, r := p.here("ModuleLoadDataEx")
	switch {
	case r != driver.Success:
		return 0, r
	case image == nil, count > 0 && (options == nil || values == nil):
		return 0, driver.ErrorInvalidValue
	}
	logs := jitLogsOf(count, options, values)
	ptx, text, r := readImage(image, ptxVersion(g.conf.DriverVersion))
	logs.write(text)
	if r != driver.Success {
		return 0, r
	}
	made := callsite.Caller()
	c.drain() // lets go of the lock
	if r := c.answer(); r != driver.Success {
		return 0, r
	}
	g.modules++
	m := &module{
		ctx:    c,
		handle: driver.Module(g.handle(moduleBase, moduleStep, g.modules)),
		ptx:    ptx,
		funcs:  map[string]*function{},
		made:   made,
	}
	p.modules[m.handle] = m
	return m.handle, driver.Success
}

// moduleUnload waits until the device is idle, as the real one does. It may run
// in a cleanup: see the package's comment.
func (p *Process) moduleUnload(h driver.Module) driver.Result {
	p.gpu.mu.Lock()
	defer p.gpu.mu.Unlock()
	m, r := p.module("ModuleUnload", h)
	if r == driver.ErrorContextIsDestroyed {
		p.unload(p.modules[h])
	}
	switch {
	case r != driver.Success:
		return r
	case p.forbidden():
		return driver.ErrorStreamCaptureUnsupported
	}
	p.gpu.advance()
	p.unload(m)
	m.ctx.drain() // lets go of the lock
	return m.ctx.answer()
}

// unload makes the handles of m and of its functions mean nothing.
func (p *Process) unload(m *module) {
	delete(p.modules, m.handle)
	for _, f := range m.funcs {
		delete(p.funcs, f.handle)
	}
}

func (p *Process) moduleGetFunction(h driver.Module, name string) (driver.Func, driver.Result) {
	g := p.gpu
	g.mu.Lock()
	defer g.mu.Unlock()
	m, r := p.module("ModuleGetFunction", h)
	if r != driver.Success {
		return 0, r
	}
	g.advance()
	switch {
	case m.ctx.fault != driver.Success:
		return 0, m.ctx.fault
	case name == "":
		return 0, driver.ErrorInvalidValue
	case m.funcs[name] != nil:
		return m.funcs[name].handle, driver.Success
	}
	k, registered := g.kernels[name]
	var e *entry
	if m.ptx == nil {
		e = k.entry() // the image is the only other place that could say
	} else if e = m.ptx.entries[name]; e == nil {
		return 0, driver.ErrorNotFound
	}
	if !registered {
		p.misuse("ModuleGetFunction", "no Go function stands for the kernel %q: see GPU.RegisterKernel", name)
		return 0, driver.ErrorNotFound
	}
	g.funcs++
	f := &function{entry: e, name: name, mod: m, handle: driver.Func(g.handle(funcBase, funcStep, g.funcs))}
	f.dynamic = maxStaticBytes - e.shared
	m.funcs[name], p.funcs[f.handle] = f, f
	return f.handle, driver.Success
}

// readImage reads an image: PTX, up to the byte 0 at its end, or machine code, of
// which it sees that it is that. text is for the log.
func readImage(image unsafe.Pointer, newest int) (m *ptxModule, text string, r driver.Result) {
	for _, magic := range []string{"\x7fELF", "\x50\xed\x55\xba"} {
		if begins(image, magic) {
			return nil, "", driver.Success
		}
	}
	n := 0
	for *(*byte)(unsafe.Add(image, n)) != 0 {
		n++
	}
	ptx := string(unsafe.Slice((*byte)(image), n))
	lex := newPTXLexer(ptx)
	if t := lex.peek(); t.end() || t.text[0] != '.' {
		return nil, "error   : Binary format for key='0', ident='' is not recognized", driver.ErrorInvalidImage
	}
	m, err := parsePTX(ptx, newest)
	if err != nil {
		return nil, err.Error(), err.code
	}
	return m, "", driver.Success
}

// begins compares what is at p with s, and reads no further than that differs.
func begins(p unsafe.Pointer, s string) bool {
	for i := range len(s) {
		if *(*byte)(unsafe.Add(p, i)) != s[i] {
			return false
		}
	}
	return true
}

// jitLogs are the buffers of the compiler's messages. The values of options are
// an array of pointers, some of which are numbers.
type jitLogs struct {
	info, errors         unsafe.Pointer
	infoSize, errorsSize *uintptr
}

func jitLogsOf(count uint32, options, values unsafe.Pointer) (l jitLogs) {
	for i := range int(count) {
		value := unsafe.Add(values, uintptr(i)*unsafe.Sizeof(uintptr(0)))
		switch *(*driver.JITOption)(unsafe.Add(options, 4*i)) {
		case driver.JITInfoLogBuffer:
			l.info = *(*unsafe.Pointer)(value)
		case driver.JITInfoLogBufferSize:
			l.infoSize = (*uintptr)(value)
		case driver.JITErrorLogBuffer:
			l.errors = *(*unsafe.Pointer)(value)
		case driver.JITErrorLogBufferSize:
			l.errorsSize = (*uintptr)(value)
		}
	}
	return l
}

// write puts the errors, and no other information, into the buffers, ended by a
// byte 0, and says in the place of their sizes how much that is.
func (l jitLogs) write(errors string) {
	for _, to := range []struct {
		buf  unsafe.Pointer
		size *uintptr
		text string
	}{{l.info, l.infoSize, ""}, {l.errors, l.errorsSize, errors}} {
		if to.buf == nil || to.size == nil || *to.size == 0 {
			continue
		}
		buf := unsafe.Slice((*byte)(to.buf), *to.size)
		n := copy(buf[:len(buf)-1], to.text)
		buf[n] = 0
		*to.size = uintptr(n)
	}
}

// ptxVersion returns the newest version of PTX that a driver of a CUDA version
// knows, both as 10*major + minor; the driver's has a factor 100 more.
func ptxVersion(cuda int) int {
	major, minor := cuda/1000, cuda%1000/10
	switch {
	case major == 11:
		return 70 + minor
	case major == 12 && minor < 6:
		return 80 + minor
	case major == 12: // 12.6 brought no new version
		return 79 + minor
	}
	return 10*(major-4) + minor
}
