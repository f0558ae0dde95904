package cuda

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

// pack is the arguments of a launch as the driver takes them.
type pack struct {
	// block begins with the addresses of the arguments, which are further on in
	// it. It is on the heap, where it does not move.
	block []uint64
	args  []argument
	uses  []use
}

type argument struct {
	t    reflect.Type
	at   int // the word of the block at which it begins
	size int
}

// use is a buffer among the arguments.
type use struct {
	arg    int
	h      *handle
	buffer any // keeps it from being collected
}

// What a pack has besides the arguments where the driver does not tell the
// kernel's parameters. The driver then reads as many addresses, and as many bytes
// at each, as the kernel wants, and may be told to by a call with too few or too
// small arguments. With this it finds zeros instead of the end of the memory, for
// parameters as many as any kernel can have.
const (
	spareParams = maxParamBytes / 8
	spareWords  = maxParamBytes / 8
)

func (k *Kernel) prepare(op string, args []any) (*PreparedKernel, error) {
	if err := k.acquire(op); err != nil {
		return nil, err
	}
	defer k.m.h.release()
	if k.known && len(args) != len(k.params) {
		return nil, k.invalid(op, fmt.Sprintf("%d arguments for %d parameters", len(args), len(k.params)))
	}
	p := &PreparedKernel{k: k}
	p.args = make([]argument, len(args))
	params, spare := len(args), 0
	if !k.known {
		params, spare = params+spareParams, spareWords
	}
	words := params
	for i, arg := range args {
		t, err := k.argType(op, i, arg)
		if err != nil {
			return nil, err
		}
		p.args[i] = argument{t: t.t, at: words, size: t.size}
		words += (t.size + 7) / 8
	}
	p.block = make([]uint64, words+spare)
	for i := range params {
		at := words // zeros
		if i < len(args) {
			at = p.args[i].at
		}
		p.block[i] = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p.block[at:]))))
	}
	for i, arg := range args {
		if err := k.set(op, &p.pack, i, arg); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// argType looks up the type of an argument and whether it fits the parameter.
func (k *Kernel) argType(op string, i int, arg any) (*argType, error) {
	if arg == nil {
		return nil, k.invalid(op, fmt.Sprintf("argument %d is nil: for a null pointer give driver.DevicePtr(0)", i))
	}
	t, problem := argTypeOf(reflect.TypeOf(arg))
	if problem != "" {
		return nil, k.invalid(op, fmt.Sprintf("argument %d%s", i, problem))
	}
	if k.known && uint64(t.size) != k.params[i] {
		return nil, k.invalid(op, fmt.Sprintf("parameter %d has %d bytes, and %v, its argument, has %d", i, k.params[i], t.t, t.size))
	}
	return t, nil
}

// set puts argument i into the pack, or changes nothing.
func (k *Kernel) set(op string, p *pack, i int, arg any) error {
	t, err := k.argType(op, i, arg)
	if err != nil {
		return err
	}
	a := &p.args[i]
	if t.t != a.t && !(isAddress(t.t) && isAddress(a.t)) {
		return k.invalid(op, fmt.Sprintf("argument %d was a %v and cannot become a %v", i, a.t, t.t))
	}
	value := reflect.New(t.t) // memory that has an address
	value.Elem().Set(reflect.ValueOf(arg))
	var uses []use
	addresses := make([]driver.DevicePtr, len(t.memory))
	for n, f := range t.memory {
		m := reflect.NewAt(f.t, unsafe.Add(value.UnsafePointer(), f.at)).Elem().Interface().(anyMemory)
		h, at, err := m.hold(op)
		if err != nil {
			e := *err.(*Error)
			e.Detail = strings.TrimSuffix(fmt.Sprintf("kernel %s: argument %d%s: %s", k.name, i, f.path, e.Detail), ": ")
			return &e
		}
		h.release() // the launches hold it
		if h.dev.driver != k.m.h.dev.driver {
			return twoDrivers(op)
		}
		uses = append(uses, use{arg: i, h: h, buffer: m})
		addresses[n] = at
	}
	to := unsafe.Slice((*byte)(unsafe.Pointer(&p.block[a.at])), a.size)
	from := unsafe.Slice((*byte)(value.UnsafePointer()), a.size)
	for _, s := range t.spans {
		copy(to[s.from:s.to], from[s.from:s.to])
	}
	for n, f := range t.memory {
		*(*driver.DevicePtr)(unsafe.Pointer(&to[f.at])) = addresses[n]
	}
	a.t = t.t
	p.uses = append(slices.DeleteFunc(p.uses, func(u use) bool { return u.arg == i }), uses...)
	return nil
}

// acquire takes a reference to each buffer, up to the first that is closed, and
// returns how many.
func (p *pack) acquire() int {
	for i := range p.uses {
		if !p.uses[i].h.acquire() {
			return i
		}
	}
	return len(p.uses)
}

func (p *pack) release(held int) {
	for i := range held {
		p.uses[i].h.release()
	}
}
