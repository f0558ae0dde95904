//go:build linux && (amd64 || arm64) && !nocuda && !purecuda_syscalln

package main

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed loop.c
var loopSource string

// compile compiles the C loop into a shared library in dir, and returns its path
// and what the compiler says that it is.
func compile(dir string) (library, version string, err error) {
	cc := compiler()
	if cc == nil {
		return "", "", errors.New("no C compiler for the C loop: set CC, or install gcc or clang")
	}
	source := filepath.Join(dir, "loop.c")
	library = filepath.Join(dir, "loop.so")
	if err := os.WriteFile(source, []byte(loopSource), 0o666); err != nil {
		return "", "", err
	}
	cmd := exec.Command(cc[0], append(cc[1:], "-O2", "-shared", "-fPIC", "-pthread", "-o", library, source)...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("compiling the C loop: %v: %w\n%s", cmd, err, text)
	}
	text, err := exec.Command(cc[0], "--version").Output()
	if err != nil {
		return "", "", fmt.Errorf("%s --version: %w", cc[0], err)
	}
	version, _, _ = strings.Cut(string(text), "\n")
	return library, version, nil
}

// compiler returns the compiler's command: $CC, which may have arguments, else the
// first of cc, gcc and clang that is there, else nil.
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
