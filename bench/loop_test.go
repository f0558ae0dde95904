//go:build linux && (amd64 || arm64) && !nocuda && !purecuda_syscalln

package main

import (
	_ "embed"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/bench"
	"github.com/purecuda/cuda/internal/ccall/testlib"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(child(role, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

//go:embed testdata/calls.c
var callsSource string

// called is a library with functions that look at how they are called.
type called struct {
	library
	loop *cloop
}

func openCalled(t *testing.T) called {
	l, err := openLibrary(testlib.Compile(t, callsSource))
	require.NoError(t, err)
	file, version, err := compile(t.TempDir())
	require.NoError(t, err)
	require.NotEmpty(t, version)
	loop, err := openLoop(file)
	require.NoError(t, err)
	return called{l, loop}
}

func (c called) int(t *testing.T, name string) int {
	fn, err := c.find(name)
	require.NoError(t, err)
	n, _, _ := purego.SyscallN(fn)
	return int(int32(n))
}

// engines are the ways to do calls that know them by their addresses.
func (c called) engines(t *testing.T, described ...bench.Call) map[string]func(n int) error {
	calls, err := c.calls(described)
	require.NoError(t, err)
	registered, err := registerFunc(calls)
	if err != nil {
		registered = nil
	}
	return map[string]func(n int) error{
		"C":            func(n int) error { _, err := c.loop.run(calls, n); return err },
		"SyscallN":     syscallN(calls),
		"RegisterFunc": registered,
	}
}

// Every engine makes every call, as often as it is to, with the right arguments.
func TestEnginesCallTheSame(t *testing.T) {
	c := openCalled(t)
	args := []uint64{0xf0e1d2c3b4a59601, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	wide := bench.Call{Symbol: "f11", Args: args}
	for n := range maxArgs + 1 {
		call := bench.Call{Symbol: fmt.Sprint("f", n), Args: args[:n]}
		for name, run := range c.engines(t, call) {
			if run == nil {
				require.Contains(t, []int{5, 6, 7, 8, 9, 10}, n, "no row has such a function")
				continue
			}
			c.int(t, "reset")
			require.NoError(t, run(1000), "%s, %d arguments", name, n)
			require.Equal(t, 1000, c.int(t, "count"), "%s, %d arguments", name, n)
		}
		c.int(t, "reset")
		require.NoError(t, c.engines(t, call, wide, call)["C"](100))
		require.Equal(t, 300, c.int(t, "count"))
	}
}

// What an earlier call has written is an argument of a later one.
func TestEnginesLoad(t *testing.T) {
	c := openCalled(t)
	word := new(uint64)
	out := uint64(address(word))
	for name, run := range c.engines(t,
		bench.Call{Symbol: "create", Args: []uint64{out, 2}},
		bench.Call{Symbol: "use", Args: []uint64{out, 7}, Load: 1},
		bench.Call{Symbol: "destroy", Args: []uint64{out}, Load: 1},
	) {
		c.int(t, "reset")
		require.NoError(t, run(100), name)
		require.Equal(t, 300, c.int(t, "count"), name)
	}
	// The fast loop is not for these.
	for name, run := range c.engines(t, bench.Call{Symbol: "destroy", Args: []uint64{out}, Load: 1}) {
		require.NoError(t, run(10), name)
	}
}

// The first failure is the last call, and the result.
func TestEnginesFail(t *testing.T) {
	c := openCalled(t)
	fails := bench.Call{Symbol: "fails", Args: []uint64{70}}
	for _, sequence := range [][]bench.Call{{fails}, {fails, fails, fails}} {
		for name, run := range c.engines(t, sequence...) {
			c.int(t, "reset")
			require.Equal(t, driver.Result(700), run(1000), name)
			require.Equal(t, 70, c.int(t, "count"), name)
		}
	}
	_, err := c.calls([]bench.Call{{Symbol: "nothing"}})
	require.Error(t, err)
	_, err = c.calls([]bench.Call{{Symbol: "f11", Args: make([]uint64, 12)}})
	require.ErrorContains(t, err, "12 arguments")
}

func TestThreads(t *testing.T) {
	c := openCalled(t)
	setCurrent, err := c.find("set_current")
	require.NoError(t, err)
	// Each thread has words of its own, far from the others'.
	const n = 1000
	for _, threads := range []int{1, 2, 16} {
		words := make([]uint64, 32*threads)
		var described []bench.Call
		for i := range threads {
			described = append(described,
				bench.Call{Symbol: "add", Args: []uint64{uint64(address(&words[32*i]))}},
				bench.Call{Symbol: "add", Args: []uint64{uint64(address(&words[32*i+16]))}})
		}
		calls, err := c.calls(described)
		require.NoError(t, err)
		c.int(t, "reset")
		took, err := c.loop.runThreads(calls, threads, n, setCurrent, 0x20)
		require.NoError(t, err)
		require.Positive(t, took)
		require.Less(t, took, 10*time.Second)
		require.Equal(t, threads, c.int(t, "count"), "each sets the context")
		for i := range threads {
			require.EqualValues(t, n, words[32*i])
			require.EqualValues(t, n, words[32*i+16])
		}
	}
}

func TestThreadsFail(t *testing.T) {
	c := openCalled(t)
	setCurrent, err := c.find("set_current")
	require.NoError(t, err)
	calls, err := c.calls([]bench.Call{{Symbol: "fails", Args: []uint64{50}}, {Symbol: "fails", Args: []uint64{50}}})
	require.NoError(t, err)

	_, err = c.loop.runThreads(calls, 2, 1000, setCurrent, 0x20)
	require.Equal(t, driver.Result(700), err)

	c.int(t, "reset")
	_, err = c.loop.runThreads(calls, 2, 1000, setCurrent, 0x10)
	require.Equal(t, driver.Result(201), err)
	require.Equal(t, 2, c.int(t, "count"), "without a context nothing is called")
}

func TestNoCompiler(t *testing.T) {
	t.Setenv("CC", "")
	t.Setenv("PATH", t.TempDir())
	_, _, err := compile(t.TempDir())
	require.ErrorContains(t, err, "no C compiler")
	t.Setenv("CC", "/nowhere/cc -m64")
	_, _, err = compile(t.TempDir())
	require.ErrorContains(t, err, "/nowhere/cc -m64 -O2")
}
