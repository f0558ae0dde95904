package kargs

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

// allocation is what the buffers of these tests are in.
type allocation struct {
	closed bool
	_      [2]uint64 // alone in its memory, so that it is collected by itself
}

// buffer is memory for these tests.
type buffer[T any] struct {
	in *allocation
	at driver.DevicePtr
}

type anyBuffer interface {
	hold() (*allocation, driver.Use, error)
}

var (
	errClosed = errors.New("already closed")
	errNil    = errors.New("the buffer is nil")
)

func (b *buffer[T]) hold() (*allocation, driver.Use, error) {
	switch {
	case b == nil:
		return nil, driver.Use{}, errNil
	case b.in.closed:
		return nil, driver.Use{}, errClosed
	}
	return b.in, driver.Use{At: b.at}, nil
}

// isBuffer reports whether t is a *buffer, and not a type that embeds one.
func isBuffer(t reflect.Type) bool {
	return t.Kind() == reflect.Pointer && t.Implements(reflect.TypeFor[anyBuffer]()) &&
		strings.HasPrefix(t.Elem().Name(), "buffer[")
}

func newTypes() *Types[*allocation] {
	return NewTypes(isBuffer, func(memory any) (*allocation, driver.Use, error) {
		return memory.(anyBuffer).hold()
	})
}

// newBuffer returns a buffer whose allocation is on the heap, as blocks want it.
//
//go:noinline
func newBuffer[T any](at driver.DevicePtr) *buffer[T] {
	return &buffer[T]{in: new(allocation), at: at}
}

// read reads arguments of these sizes as the driver does.
func read[M any](b *Block[M], sizes ...int) [][]byte {
	var all [][]byte
	for i, p := range unsafe.Slice((*unsafe.Pointer)(b.Params()), len(sizes)) {
		all = append(all, bytes.Clone(unsafe.Slice((*byte)(p), sizes[i])))
	}
	return all
}

// sizesOf returns the sizes as the driver tells them.
func sizesOf(sizes ...int) []uint64 {
	var all []uint64
	for _, n := range sizes {
		all = append(all, uint64(n))
	}
	return all
}

// pack packs the arguments for a kernel whose parameters have these sizes.
func pack[M any](t testing.TB, b *Block[M], sizes []int, args ...any) {
	t.Helper()
	require.NoError(t, b.Pack(sizesOf(sizes...), true, args))
}

// uses returns the memory of a block by argument.
func uses(b *Block[*allocation]) map[int][]*allocation {
	all := make(map[int][]*allocation)
	for i, m := range b.Holders() {
		all[b.ArgumentOf(i)] = append(all[b.ArgumentOf(i)], m)
	}
	return all
}
