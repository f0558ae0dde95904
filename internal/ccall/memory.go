package ccall

// Buffer returns n zero bytes on the heap. A C function may be given their
// address, which an ordinary local slice's is not fit for: it may stand on the
// goroutine's stack, and stacks move.
//
//go:noinline
func Buffer(n int) []byte { return make([]byte, n) }
