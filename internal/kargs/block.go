package kargs

import (
	"fmt"
	"reflect"
	"slices"
	"unsafe"

	"github.com/purecuda/cuda/driver"
)

// Block is the arguments of a launch as the driver takes them: their addresses, and
// the values at these. Both are on the heap, where they do not move. A Block is made
// by [Types.NewBlock], and can be packed any number of times; it then allocates only
// to get larger.
type Block[M any] struct {
	types  *Types[M]
	params []uint64 // the sizes of the kernel's parameters
	known  bool     // whether the driver tells them

	addrs  []uint64 // behind its length, up to its capacity, is the address of zeros
	values []uint64 // behind its length, up to its capacity, are zeros

	args    []argument
	holders []M     // the memory among the arguments, as the Types resolved it
	uses    []useOf // in which argument each is
}

type argument struct {
	*argType
	at int // the word of the values at which it begins
}

type useOf struct {
	arg int
	driver.Use
}

// What a block has besides the arguments where the driver does not tell the
// kernel's parameters. The driver then reads as many addresses, and as many bytes
// at each, as the kernel wants, and may be told to by a call with too few or too
// small arguments. With this it finds zeros instead of the end of the memory, for
// more parameters than kernels have.
const (
	spareParams = maxParamBytes / 8
	spareWords  = (maxParamBytes + 7) / 8
)

// zeros is the value of parameters without an argument.
var zeros [spareWords]uint64

// NewBlock returns a block without arguments.
func (t *Types[M]) NewBlock() *Block[M] { return &Block[M]{types: t} }

// Pack makes args the arguments. They must be of the sizes in params, if these are
// known. The block keeps params, but neither args nor what is in them. After an error
// it has no arguments.
func (b *Block[M]) Pack(params []uint64, known bool, args []any) error {
	b.Reset()
	b.params, b.known = params, known
	if known && len(args) != len(params) {
		return fmt.Errorf("%d arguments for %d parameters", len(args), len(params))
	}
	err := b.pack(unescaped(args))
	if err != nil {
		b.Reset()
	}
	return err
}

func (b *Block[M]) pack(args []any) error {
	b.args = slices.Grow(b.args, len(args))[:len(args)]
	words := 0
	for i := range args {
		a := &b.args[i]
		if a.argType == nil || a.word != wordsOf(&args[i]).typ { // it is what it was the last time, mostly
			t, problem := b.types.of(&args[i])
			if problem != "" {
				return fmt.Errorf("argument %d%s", i, problem)
			}
			a.argType = t
		}
		if b.known && uint64(a.size) != b.params[i] {
			return b.wrongSize(i, a.argType)
		}
		a.at = words
		words += (a.size + 7) / 8
	}
	b.reserve(words)
	all, addrs, values := b.args[:len(args)], b.addrs[:len(args)], b.values
	for i := range args {
		a := &all[i]
		to := &values[a.at]
		addrs[i] = address(to)
		if a.form.copy(unsafe.Pointer(to), wordsOf(&args[i]).data) {
			continue
		}
		if err := b.put(i, a.argType, unsafe.Pointer(to), &args[i]); err != nil {
			return err
		}
	}
	return nil
}

func (b *Block[M]) wrongSize(i int, t *argType) error {
	return fmt.Errorf("parameter %d has %d bytes, and %v, its argument, has %d", i, b.params[i], t.t, t.size)
}

// reserve makes room for the arguments, which have so many words.
func (b *Block[M]) reserve(words int) {
	addrs, values := len(b.args), words
	if !b.known {
		addrs, values = addrs+spareParams, values+spareWords
	}
	if cap(b.addrs) < addrs {
		b.addrs = make([]uint64, addrs)
		b.clearAddrs()
	}
	if cap(b.values) < values {
		b.values = make([]uint64, values)
	}
	b.addrs, b.values = b.addrs[:len(b.args)], b.values[:words]
}

func (b *Block[M]) clearAddrs() {
	for i := range b.addrs {
		b.addrs[i] = address(&zeros[0])
	}
}

func address(p *uint64) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }

// put writes argument i, which is more than a number, or nothing if memory in it
// cannot be resolved. Its memory comes to the end of the block's.
func (b *Block[M]) put(i int, t *argType, to unsafe.Pointer, arg *any) error {
	if t.form == memory {
		at, err := b.use(i, "", *arg)
		if err == nil {
			*(*driver.DevicePtr)(to) = at
		}
		return err
	}
	from, before := t.value(arg), len(b.holders)
	for _, f := range t.memory {
		if _, err := b.use(i, f.path, f.in(from)); err != nil {
			b.truncate(before)
			return err
		}
	}
	for _, s := range t.spans {
		n := s.to - s.from
		copy(unsafe.Slice((*byte)(unsafe.Add(to, s.from)), n), unsafe.Slice((*byte)(unsafe.Add(from, s.from)), n))
	}
	for n, f := range t.memory {
		*(*driver.DevicePtr)(unsafe.Add(to, f.at)) = b.uses[before+n].At
	}
	return nil
}

// use adds memory that is found in argument i.
func (b *Block[M]) use(i int, path string, m any) (driver.DevicePtr, error) {
	holder, use, err := b.types.resolve(m)
	if err != nil {
		return 0, &MemoryError{Arg: i, Path: path, Err: err}
	}
	b.holders, b.uses = append(b.holders, holder), append(b.uses, useOf{i, use})
	return use.At, nil
}

// in returns the memory in the argument that is there.
func (f memoryField) in(arg unsafe.Pointer) any {
	return reflect.NewAt(f.t.Elem(), *(*unsafe.Pointer)(unsafe.Add(arg, f.at))).Interface()
}

// Set replaces argument i, counted from 0, or changes nothing. It must be of the
// same type; memory of all kinds and driver.DevicePtr can stand for each other.
func (b *Block[M]) Set(i int, arg any) error {
	if i < 0 || i >= len(b.args) {
		return fmt.Errorf("argument %d of %d", i, len(b.args))
	}
	args := unescaped([]any{arg})
	t, problem := b.types.of(&args[0])
	switch was := b.args[i].argType; {
	case problem != "":
		return fmt.Errorf("argument %d%s", i, problem)
	case b.known && uint64(t.size) != b.params[i]:
		return b.wrongSize(i, t)
	case t.t != was.t && !(t.address && was.address):
		return fmt.Errorf("argument %d was a %v and cannot become a %v", i, was.t, t.t)
	}
	before, to := len(b.holders), unsafe.Pointer(&b.values[b.args[i].at])
	if !t.form.copy(to, wordsOf(&args[0]).data) {
		if err := b.put(i, t, to, &args[0]); err != nil {
			return err
		}
	}
	b.args[i].argType = t
	b.dropMemory(i, before)
	return nil
}

// dropMemory removes the memory of argument i from the first n.
func (b *Block[M]) dropMemory(i, n int) {
	kept := 0
	for k, u := range b.uses {
		if k >= n || u.arg != i {
			b.holders[kept], b.uses[kept] = b.holders[k], u
			kept++
		}
	}
	b.truncate(kept)
}

// truncate drops the memory behind the first n.
func (b *Block[M]) truncate(n int) {
	clear(b.holders[n:])
	b.holders, b.uses = b.holders[:n], b.uses[:n]
}

// Params returns what LaunchKernel takes for its params. It is good until the block
// is packed anew or reset, while the block is reachable.
func (b *Block[M]) Params() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b.addrs)) }

// Holders returns the memory among the arguments, which must stay as it is until the
// kernel is done. It is good until the arguments change.
func (b *Block[M]) Holders() []M { return b.holders }

// Uses returns what bytes of the memory the kernel gets.
func (b *Block[M]) Uses() []driver.Use {
	uses := make([]driver.Use, len(b.uses))
	for i, u := range b.uses {
		uses[i] = u.Use
	}
	return uses
}

// ArgumentOf returns the argument that holder i is in.
func (b *Block[M]) ArgumentOf(i int) int { return b.uses[i].arg }

// Len returns the number of arguments.
func (b *Block[M]) Len() int { return len(b.args) }

// Reset makes b a block without arguments, which keeps no memory from being collected.
func (b *Block[M]) Reset() {
	if len(b.args) == 0 {
		return
	}
	b.truncate(0)
	b.clearAddrs()
	clear(b.values)
	b.addrs, b.values, b.args = b.addrs[:0], b.values[:0], b.args[:0]
}

// MemoryError is why memory among the arguments cannot be one.
type MemoryError struct {
	Arg  int
	Path string // of the field or element that the memory is in
	Err  error
}

func (e *MemoryError) Error() string { return e.Where() + ": " + e.Err.Error() }

// Unwrap returns what the resolve function has answered.
func (e *MemoryError) Unwrap() error { return e.Err }

// Where names the argument, and the field in it.
func (e *MemoryError) Where() string { return fmt.Sprintf("argument %d%s", e.Arg, e.Path) }
