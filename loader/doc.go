// Package loader finds NVIDIA's driver library, loads it and fills the table
// [driver.API] with its functions. It needs neither cgo nor the CUDA toolkit.
//
// It is the only package that knows an operating system. Package cuda calls it;
// programs rarely do.
//
// A library is looked for as libcuda.so.1 through the system's loader, then in
// the places where containers, WSL, NixOS and Jetson keep it (nvcuda.dll of the
// system directory on Windows). A file is checked before it is loaded, because
// loading a damaged one can kill the process, and the toolkit's stub libraries
// are refused, because they stand in for a driver at link time and cannot run.
// Nothing is loaded from the working directory: while LD_LIBRARY_PATH leads to a
// library there, the system's loader is not asked. Elements of LD_LIBRARY_PATH
// with $ORIGIN or $LIB, and its glibc-hwcaps subdirectories, are not looked into
// beforehand.
//
// Built with the tag nocuda the package loads nothing and the program needs no
// C library: [Open] answers an error that wraps [errors.ErrUnsupported].
package loader
