// Package kernels has small CUDA kernels for tests, examples and measurements.
//
// Where a launch shape is not said, any grid and block in x will do: threads
// stride over the elements.
//
//	purecuda_fill(uint32 *dst, uint64 n, uint32 value)
//		dst[i] = value
//	purecuda_add(float *dst, float *a, float *b, uint64 n)
//		dst[i] = a[i] + b[i]
//	purecuda_affine(struct { float *dst, *src; float scale, offset; uint64 n })
//		dst[i] = scale*src[i] + offset; one argument of 32 bytes
//	purecuda_matmul(float *c, float *a, float *b, uint32 m, uint32 n, uint32 k)
//		c = a·b, where c is m×n, a is m×k and b is k×n, by rows; blocks of 256
//		threads in x, a grid of ceil(n/64) by ceil(m/64)
//	purecuda_spin(uint64 ns)
//		each block is busy for ns nanoseconds
//	purecuda_check(uint32 *src, uint64 n, uint32 want, uint32 *errors)
//		adds to *errors how many src[i] are not want
//	purecuda_trap()
//		fails with LAUNCH_FAILED, which breaks the context
//	purecuda_rendezvous(uint32 *counter, uint32 *arrived)
//		each block waits until all have begun and then sets arrived[block] = 1;
//		a cooperative launch, a grid in x, *counter must be 0
//	purecuda_empty()
//		does nothing
package kernels

import _ "embed"

// PTX is the text of the kernels, compiled from kernels.cu. A driver wants a
// byte 0 behind it.
//
//go:embed kernels.ptx
var PTX string
