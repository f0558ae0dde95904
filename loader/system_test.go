//go:build linux && (amd64 || arm64) && !nocuda

package loader

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The system's loader reads LD_LIBRARY_PATH when a process starts, so these
// tests run themselves again in one of their own.
const childVariable = "LOADER_TEST_CHILD"

func isChild() bool { return os.Getenv(childVariable) != "" }

// inChild runs the calling test again with LD_LIBRARY_PATH set to the
// directories. LOADER_TEST_EXEC may name a program that runs this one, such as
// an emulator.
func inChild(t *testing.T, dirs ...string) {
	t.Helper()
	inChildAt(t, "", strings.Join(dirs, ":"))
}

// inChildAt is inChild in another working directory.
func inChildAt(t *testing.T, working, libraryPath string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	args := append(strings.Fields(os.Getenv("LOADER_TEST_EXEC")), self, "-test.run=^"+t.Name()+"$", "-test.v")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = working
	cmd.Env = append(os.Environ(), childVariable+"=1", "LD_LIBRARY_PATH="+libraryPath)
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.ENOEXEC) {
		t.Skip("cannot run this program again: set LOADER_TEST_EXEC to its emulator")
	}
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: "+t.Name())
}

func TestSystemLibrary(t *testing.T) {
	if !isChild() {
		path := fakeLibrary(t, symbols(everything))
		real := filepath.Join(filepath.Dir(path), "libcuda.so.123.45")
		require.NoError(t, os.Rename(path, real))
		require.NoError(t, os.Symlink(real, filepath.Join(filepath.Dir(path), soname)))
		inChild(t, "/no/such/directory", filepath.Dir(path))
		return
	}
	dir := filepath.SplitList(os.Getenv("LD_LIBRARY_PATH"))[1]
	l := openMany(t, "", filepath.Join(dir, soname))
	require.Equal(t, filepath.Join(dir, "libcuda.so.123.45"), l.Path)
	require.Equal(t, l.Path, l.API.Source)
}

// Where there was no usable library a later call finds one that has come since.
func TestSystemFailureIsNotKept(t *testing.T) {
	if !isChild() {
		path := fakeLibrary(t, symbols(everything))
		require.NoError(t, os.Rename(path, path+".later"))
		inChild(t, filepath.Dir(path))
		return
	}
	path := filepath.Join(os.Getenv("LD_LIBRARY_PATH"), soname)
	_, err := Open("")
	if err == nil {
		t.Log("the machine has a library of its own")
		return
	}
	require.ErrorIs(t, err, ErrNotFound)
	later, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*.later"))
	require.NoError(t, err)
	require.Len(t, later, 1)
	require.NoError(t, os.Rename(later[0], path))
	l, err := Open("")
	require.NoError(t, err)
	require.Equal(t, path, l.Path)
}

// requireAvoided requires that the library in LD_LIBRARY_PATH was left alone,
// whether the machine has another one or not.
func requireAvoided(t *testing.T, reason string) {
	dir := os.Getenv("LD_LIBRARY_PATH")
	l, err := Open("")
	if err == nil {
		require.NotContains(t, l.Path, dir)
		return
	}
	require.ErrorIs(t, err, ErrNotFound)
	var e *NotFoundError
	require.ErrorAs(t, err, &e)
	require.Len(t, e.Candidates, 1+len(candidates()))
	require.Equal(t, soname, e.Candidates[0].Name)
	require.ErrorContains(t, e.Candidates[0].Err, dir)
	require.ErrorContains(t, e.Candidates[0].Err, reason)
	for _, path := range candidates() {
		require.ErrorContains(t, err, "\n\t"+path+": ")
	}
	require.ErrorContains(t, err, "Container Toolkit")
	require.ErrorContains(t, err, "Options.Library")
}

func TestSystemLibraryTruncated(t *testing.T) {
	if isChild() {
		requireAvoided(t, "shorter than its contents")
		return
	}
	data, err := os.ReadFile(fakeLibrary(t, symbols(everything)))
	require.NoError(t, err)
	inChild(t, filepath.Dir(writeFile(t, soname, data[:len(data)/2])))
}

func TestSystemLibraryStub(t *testing.T) {
	if isChild() {
		requireAvoided(t, "stub library")
		return
	}
	data, err := os.ReadFile(fakeLibrary(t, symbols(everything)))
	require.NoError(t, err)
	inChild(t, filepath.Dir(writeFile(t, "stubs/"+soname, data)))
}

func TestSystemLibraryPipe(t *testing.T) {
	if isChild() {
		requireAvoided(t, "not a regular file")
		return
	}
	dir := t.TempDir()
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, soname), 0o600))
	inChild(t, dir)
}

// TestSystemLibraryRelative has a good library in the working directory.
func TestSystemLibraryRelative(t *testing.T) {
	if isChild() {
		working, err := os.Getwd()
		require.NoError(t, err)
		l, err := Open("")
		if err == nil {
			require.NotContains(t, l.Path, working)
			return
		}
		var e *NotFoundError
		require.ErrorAs(t, err, &e)
		require.ErrorIs(t, e.Candidates[0].Err, errRelative)
		require.Len(t, e.Candidates, 1+len(candidates()), "the others are tried")
		return
	}
	path := fakeLibrary(t, symbols(everything))
	dir := filepath.Dir(path)
	require.NoError(t, os.Rename(path, filepath.Join(dir, soname)))
	for _, libraryPath := range []string{":", ".", "/no/such/directory:", "/no/such/directory;./.", "../" + filepath.Base(dir)} {
		inChildAt(t, dir, libraryPath)
	}
}

func TestSystemLibraryTooOld(t *testing.T) {
	if isChild() {
		_, err := Open("")
		require.True(t, tooOld(err), "%v", err)
		require.ErrorContains(t, err, os.Getenv("LD_LIBRARY_PATH"), "the path, not the name alone")
		return
	}
	path := fakeLibrary(t, []string{"cuInit", "cuDriverGetVersion"})
	require.NoError(t, os.Rename(path, filepath.Join(filepath.Dir(path), soname)))
	inChild(t, filepath.Dir(path))
}

func TestNotFoundError(t *testing.T) {
	err := error(&NotFoundError{Candidates: []Candidate{
		{soname, errors.New("cannot open shared object file")},
		{"/usr/lib64/" + soname, os.ErrNotExist},
	}})
	require.EqualError(t, err, `no usable CUDA driver library:
	libcuda.so.1: cannot open shared object file
	/usr/lib64/libcuda.so.1: file does not exist
`+advice)
	require.ErrorIs(t, err, ErrNotFound)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestMapsLine(t *testing.T) {
	const line = "7f0000001000-7f0000003000 r-xp 00001000 fe:01 1234   "
	for _, c := range []struct {
		line    string
		address uint64
		file    string
		ok      bool
	}{
		{line + "/usr/lib/libcuda.so.1", 0x7f0000001000, "/usr/lib/libcuda.so.1", true},
		{line + "/usr/lib/libcuda.so.1", 0x7f0000002fff, "/usr/lib/libcuda.so.1", true},
		{line + "/usr/lib/libcuda.so.1", 0x7f0000003000, "", false},
		{line + "/usr/lib/libcuda.so.1", 0x7f0000000fff, "", false},
		{line + "/a b/c (deleted)", 0x7f0000001000, "/a b/c", true},
		{line + "[vdso]", 0x7f0000001000, "", true},
		{line, 0x7f0000001000, "", true},
		{"nonsense", 0, "", false},
		{"", 0, "", false},
	} {
		file, ok := mapsLine(c.line, c.address)
		require.Equal(t, c.file, file, c.line)
		require.Equal(t, c.ok, ok, c.line)
	}
	require.Empty(t, mappedFile(0))
}
