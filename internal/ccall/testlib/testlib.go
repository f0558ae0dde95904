// Package testlib compiles C libraries and programs for tests.
package testlib

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Compile compiles C source text into a shared library in a temporary directory
// and returns its path. The compiler is $CC, which may have arguments, otherwise
// the first of cc, gcc and clang; without any the test is skipped.
func Compile(tb testing.TB, source string, flags ...string) string {
	tb.Helper()
	return compile(tb, source, "lib.so", append([]string{"-fPIC", "-shared"}, flags...))
}

// Program compiles C source text into a program and returns its path; see [Compile].
func Program(tb testing.TB, source string, flags ...string) string {
	tb.Helper()
	return compile(tb, source, "program", flags)
}

func compile(tb testing.TB, source, name string, flags []string) string {
	tb.Helper()
	cc := compiler()
	if cc == nil {
		tb.Skip("no C compiler: set CC, or install gcc or clang")
	}
	dir := tb.TempDir()
	in, out := filepath.Join(dir, "source.c"), filepath.Join(dir, name)
	if err := os.WriteFile(in, []byte(source), 0o644); err != nil {
		tb.Fatal(err)
	}
	args := append(cc[1:], "-std=c11", "-Wall", "-Werror", "-O2", "-o", out, in)
	cmd := exec.Command(cc[0], append(args, flags...)...)
	if text, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("%v: %v\n%s", cmd, err, text)
	}
	return out
}

func compiler() []string {
	if cc := strings.Fields(os.Getenv("CC")); len(cc) > 0 {
		return cc
	}
	for _, cc := range []string{"cc", "gcc", "clang"} {
		if path, err := exec.LookPath(cc); err == nil {
			return []string{path}
		}
	}
	return nil
}
