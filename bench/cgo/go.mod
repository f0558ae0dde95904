// A module of its own: it needs a C compiler, which nothing else here does.
module github.com/purecuda/cuda/bench/cgo

go 1.25.0
