//go:build !race

package native

import (
	"sync/atomic"
	"unsafe"
)

// store writes a word that other goroutines load, after everything that was written
// before. On this processor any store does so; an atomic one also waits until it is seen,
// which costs as much as an atomic addition.
func store(p *atomic.Uint64, v uint64) { *(*uint64)(unsafe.Pointer(p)) = v }
