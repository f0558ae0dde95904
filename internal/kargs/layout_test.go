package kargs

import (
	"fmt"
	"reflect"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

var fieldTypes = []reflect.Type{
	reflect.TypeFor[bool](), reflect.TypeFor[int8](), reflect.TypeFor[uint16](), reflect.TypeFor[int32](), reflect.TypeFor[uint64](),
	reflect.TypeFor[float32](), reflect.TypeFor[float64](), reflect.TypeFor[driver.DevicePtr](), reflect.TypeFor[*buffer[int8]](),
}

// choices makes types and values of bytes.
type choices []byte

// next returns a number below n.
func (c *choices) next(n int) int {
	if len(*c) == 0 {
		return 0
	}
	v := int((*c)[0]) % n
	*c = (*c)[1:]
	return v
}

func (c *choices) typ(depth int) reflect.Type {
	switch kind := c.next(len(fieldTypes) + 2*depth); {
	case kind < len(fieldTypes):
		return fieldTypes[kind]
	case kind%2 == 0:
		return reflect.ArrayOf(1+c.next(3), c.typ(depth-1))
	}
	fields := make([]reflect.StructField, 1+c.next(4))
	for i := range fields {
		fields[i] = reflect.StructField{Name: fmt.Sprint("F", i), Type: c.typ(depth - 1)}
	}
	return reflect.StructOf(fields)
}

// fill gives v a value, and returns it as C has it, and its alignment there. The
// buffers in it are added to used.
func (c *choices) fill(v reflect.Value, used *[]*allocation) (bytes []byte, align int) {
	pad := func(to int) {
		align = max(align, to)
		for len(bytes)%to != 0 {
			bytes = append(bytes, 0)
		}
	}
	add := func(part reflect.Value) {
		b, a := c.fill(part, used)
		pad(a)
		bytes = append(bytes, b...)
	}
	switch v.Kind() {
	case reflect.Array:
		for i := range v.Len() {
			add(v.Index(i))
		}
		return bytes, align
	case reflect.Struct:
		for i := range v.NumField() {
			add(v.Field(i))
		}
		pad(align)
		return bytes, align
	case reflect.Pointer:
		x := newBuffer[int8](driver.DevicePtr(0x7f000000 + c.next(256)))
		*used = append(*used, x.in)
		v.Set(reflect.ValueOf(x))
		return bytesOf(x.at), 8
	case reflect.Bool:
		v.SetBool(c.next(2) == 1)
		if v.Bool() {
			return []byte{1}, 1
		}
		return []byte{0}, 1
	}
	size := int(v.Type().Size())
	for range size {
		bytes = append(bytes, byte(c.next(256)))
	}
	copy(unsafe.Slice((*byte)(v.Addr().UnsafePointer()), size), bytes)
	return bytes, size
}

// Whatever structs and arrays are made of, they arrive as C lays them out.
func FuzzLayout(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{10, 3, 1, 4, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
	f.Add([]byte{9, 2, 10, 2, 8, 1, 8, 1, 2, 3})
	f.Add([]byte{12, 3, 10, 1, 0, 2, 11, 2, 3, 255, 255, 255, 255, 1, 255, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		c := choices(b)
		v := reflect.New(c.typ(3)).Elem()
		var used []*allocation
		want, _ := c.fill(v, &used)
		require.Len(t, want, int(v.Type().Size()), "of %v", v.Type())
		block := newTypes().NewBlock()
		sizes := []int{1, len(want), 8}
		for range 2 {
			pack(t, block, sizes, true, v.Interface(), uint64(1<<63))
			got := read(block, sizes...)
			require.Equal(t, want, got[1], "of %v", v.Type())
			require.Equal(t, bytesOf(1<<63), got[2])
			require.Equal(t, used, uses(block)[1])
			require.NoError(t, block.Set(1, v.Interface()))
			require.Equal(t, got, read(block, sizes...))
			require.Equal(t, used, uses(block)[1])
		}
	})
}
