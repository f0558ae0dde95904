package kargs

import (
	"testing"
	"time"

	"github.com/purecuda/cuda/driver"
)

func BenchmarkPack(b *testing.B) {
	types := newTypes()
	x := newBuffer[float32](1)
	n := uint64(1000)
	for _, c := range []struct {
		name   string
		params []uint64
		args   []any
	}{
		{"nothing", sizesOf(), nil},
		{"1 uint64", sizesOf(8), []any{n}},
		{"8 uint64", sizesOf(8, 8, 8, 8, 8, 8, 8, 8), []any{n, n, n, n, n, n, n, n}},
		{"8 float32", sizesOf(4, 4, 4, 4, 4, 4, 4, 4), []any{float32(n), float32(n), float32(n), float32(n), float32(n), float32(n), float32(n), float32(n)}},
		{"8 numbers", sizesOf(8, 4, 2, 1, 1, 4, 8, 8), []any{n, int32(n), int16(n), int8(n), true, float32(n), float64(n), driver.DevicePtr(n)}},
		{"1 memory", sizesOf(8), []any{x}},
		{"8 memory", sizesOf(8, 8, 8, 8, 8, 8, 8, 8), []any{x, x, x, x, x, x, x, x}},
		{"fill", sizesOf(8, 8, 4), []any{x, n, uint32(n)}},
		{"fill, sizes not known", nil, []any{x, n, uint32(n)}},
		{"8 durations", sizesOf(8, 8, 8, 8, 8, 8, 8, 8), func() (all []any) {
			for range 8 {
				all = append(all, time.Duration(n))
			}
			return all
		}()},
		{"1 struct", sizesOf(32), []any{mixed{B: n}}},
		{"1 struct with memory", sizesOf(16), []any{embedding{x, n}}},
		{"1 array", sizesOf(2048), []any{[256]uint64{1}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			block := types.NewBlock()
			b.ReportAllocs()
			for b.Loop() {
				if err := block.Pack(c.params, c.params != nil, c.args); err != nil {
					b.Fatal(err)
				}
				block.Reset()
			}
		})
	}
}

// As a launch does it, with a new number each time.
func BenchmarkLaunch(b *testing.B) {
	block, params := newTypes().NewBlock(), sizesOf(8, 8, 4)
	x := newBuffer[float32](1)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := launch(block, params, x, uint64(1000+i), float32(i)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSet(b *testing.B) {
	block := newTypes().NewBlock()
	x := newBuffer[float32](1)
	pack(b, block, []int{8, 8}, x, uint64(1))
	b.Run("number", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			_ = block.Set(1, uint64(1000+i))
		}
	})
	b.Run("memory", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = block.Set(0, x)
		}
	})
}
