//go:build !nocuda && ((linux && (amd64 || arm64)) || (windows && amd64))

package ccall

import "github.com/ebitengine/purego"

// Struct64 is a C struct of 64 bytes, for functions that take one by value. It
// crosses on the stack (System V) or as a pointer to a copy (arm64, Windows).
type Struct64 struct{ Bytes [64]byte }

// Register makes the func variable that fptr points to call the C function fn.
// It handles what a [Frame] cannot, a struct by value; a call costs several
// allocations.
func Register(fptr any, fn uintptr) { purego.RegisterFunc(fptr, fn) }
