//go:build linux && (amd64 || arm64) && !nocuda

package loader

import (
	"debug/elf"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBadFiles(t *testing.T) {
	good := fakeLibrary(t, symbols(everything))
	data, err := os.ReadFile(good)
	require.NoError(t, err)
	dir := t.TempDir()
	link := func(target, name string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.Symlink(target, path))
		return path
	}
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	stub := writeFile(t, "lib64/stubs/libcuda.so", data)

	for _, c := range []struct{ name, path, reason string }{
		{"relative", "libcuda.so.1", "not an absolute path"},
		{"relative with a directory", "./libcuda.so.1", "not an absolute path"},
		{"missing", filepath.Join(dir, "libcuda.so.1"), "no such file"},
		{"missing directory", "/no/such/libcuda.so.1", "no such file"},
		{"under a file", good + "/libcuda.so.1", "not a directory"},
		{"dangling link", link("nowhere", "dangling"), "no such file"},
		{"circle of links", link("circle", "circle"), "too many links"},
		{"directory", dir, "a directory"},
		{"pipe", pipe, "not a regular file"},
		{"device", "/dev/null", "not a regular file"},
		{"zero byte in the path", dir + "/a\x00b", "invalid argument"},
		{"empty", writeFile(t, "empty.so", nil), "an empty file"},
		{"text", writeFile(t, "text.so", []byte("GROUP ( libcuda.so.1 )\n")), "not a shared library"},
		{"one byte", writeFile(t, "short.so", data[:1]), "not a shared library"},
		{"four bytes", writeFile(t, "magic.so", data[:4]), "shorter than its contents"},
		{"half", writeFile(t, "half.so", data[:len(data)/2]), "shorter than its contents"},
		{"without the last byte", writeFile(t, "last.so", data[:len(data)-1]), "shorter than its contents"},
		{"headers alone", writeFile(t, "headers.so", image(nil)), ""}, // in the system loader's own words
		{"word size", writeFile(t, "class.so", image(func(h *elf.Header64, _ []elf.Prog64) { h.Ident[elf.EI_CLASS] = 1 })), "64-bit"},
		{"machine", writeFile(t, "machine.so", image(func(h *elf.Header64, _ []elf.Prog64) { h.Machine = uint16(elf.EM_RISCV) })), "EM_RISCV"},
		{"program", writeFile(t, "program", image(func(h *elf.Header64, _ []elf.Prog64) { h.Type = uint16(elf.ET_EXEC) })), "ET_EXEC"},
		{"stub", stub, "stub library"},
		{"link to a stub", link(stub, "libcuda.so.9"), "stub library"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := Open(c.path)
			require.Nil(t, l)
			require.ErrorIs(t, err, ErrNotFound)
			var e *NotFoundError
			require.ErrorAs(t, err, &e)
			require.Len(t, e.Candidates, 1)
			require.Equal(t, c.path, e.Candidates[0].Name)
			require.ErrorContains(t, e.Candidates[0].Err, c.reason)
			require.ErrorContains(t, err, c.path)
			require.ErrorContains(t, err, c.reason)
		})
	}
	_, err = Open("/no/such/libcuda.so.1")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestFailuresAreNotKept(t *testing.T) {
	data, err := os.ReadFile(fakeLibrary(t, symbols(everything)))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "libcuda.so.1")
	_, err = Open(path)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, os.WriteFile(path, data, 0o644))
	l, err := Open(path)
	require.NoError(t, err)
	require.Equal(t, path, l.Path)
}

// openMany opens the paths, in turns, from 1000 goroutines at once, and requires
// that all get the same library.
func openMany(t *testing.T, paths ...string) *Library {
	var libraries [1000]*Library
	var errs [1000]error
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range libraries {
		wg.Go(func() {
			<-start
			libraries[i], errs[i] = Open(paths[i%len(paths)])
		})
	}
	close(start)
	wg.Wait()
	for i := range libraries {
		require.NoError(t, errs[i])
		require.Same(t, libraries[0], libraries[i])
	}
	return libraries[0]
}

func TestOpenedOnce(t *testing.T) {
	path := fakeLibrary(t, symbols(everything))
	link := filepath.Join(t.TempDir(), "libcuda.so.1")
	require.NoError(t, os.Symlink(path, link))
	l := openMany(t, path, link)
	require.Equal(t, path, l.Path)

	other, err := Open(fakeLibrary(t, symbols(everything)))
	require.NoError(t, err)
	require.NotSame(t, l, other, "another file")
}
