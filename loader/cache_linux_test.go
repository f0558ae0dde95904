//go:build (amd64 || arm64) && !nocuda

package loader

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// cacheOf makes a cache of names and their paths, in turns.
func cacheOf(text ...string) []byte {
	n := uint32(len(text) / 2)
	head := append([]byte(cacheMagic), make([]byte, cacheHeader-len(cacheMagic))...)
	binary.NativeEndian.PutUint32(head[20:], n)
	at := cacheHeader + cacheEntry*n
	var entries, strings []byte
	for i, s := range text {
		if i%2 == 0 {
			entries = binary.NativeEndian.AppendUint32(entries, 0x303)
		}
		entries = binary.NativeEndian.AppendUint32(entries, at+uint32(len(strings)))
		if i%2 != 0 {
			entries = append(entries, make([]byte, 12)...)
		}
		strings = append(append(strings, s...), 0)
	}
	return bytes.Join([][]byte{head, entries, strings}, nil)
}

func TestParseCache(t *testing.T) {
	data := cacheOf("libc.so.6", "/lib/libc.so.6", soname, "/a/"+soname, soname+"23", "/x", soname, "relative", soname, "/b/"+soname)
	want := []string{"/a/" + soname, "/b/" + soname}
	require.Equal(t, want, parseCache(data, soname))
	require.Equal(t, want, parseCache(append([]byte("ld.so-1.7.0\x00 and its entries"), data...), soname))
	require.Empty(t, parseCache(data, "libcuda.so"))
	require.Empty(t, parseCache([]byte("ld.so-1.7.0\x00"), soname))
	for n := range data {
		require.Subset(t, want, parseCache(data[:n], soname))
	}
	binary.NativeEndian.PutUint32(data[20:], math.MaxUint32)
	require.Equal(t, want, parseCache(data, soname)[:2])
	binary.NativeEndian.PutUint32(data[cacheHeader+cacheEntry+8:], math.MaxUint32)
	require.Equal(t, want[1:], parseCache(data, soname)[:1])
}

// TestParseSystemCache reads what the machine's own ldconfig wrote.
func TestParseSystemCache(t *testing.T) {
	out, err := exec.Command("sh", "-c", "PATH=$PATH:/sbin:/usr/sbin ldconfig -p").Output()
	if err != nil || !bytes.Contains(out, []byte("libc.so.6 (")) {
		t.Log("no ldconfig, or no cache of its, to compare with")
		return
	}
	files := cached("libc.so.6")
	require.NotEmpty(t, files)
	for _, file := range files {
		require.Contains(t, string(out), " => "+file+"\n")
	}
	require.Equal(t, bytes.Count(out, []byte("\tlibc.so.6 (")), len(files))
}

// useCache puts another cache in the place of the machine's.
func useCache(t *testing.T, path string) {
	before := cacheFile
	cacheFile = path
	t.Cleanup(func() { cacheFile = before })
}

// TestCachedLibraryIsChecked has a library that only the cache knows.
func TestCachedLibraryIsChecked(t *testing.T) {
	data, err := os.ReadFile(fakeLibrary(t, symbols(everything)))
	require.NoError(t, err)
	half := writeFile(t, soname, data[:len(data)/2])
	useCache(t, writeFile(t, "ld.so.cache", cacheOf(soname, half)))
	_, err = openSoname()
	require.ErrorIs(t, err, errTruncated)
	require.ErrorContains(t, err, half)

	// It is tried by its path too, as the system's loader may not be asked.
	require.Equal(t, half, candidates()[0])
	require.NoError(t, os.WriteFile(half, data, 0o644))
	if _, err := openSoname(); err != nil { // the machine has no driver of its own
		l, err := openSystem()
		require.NoError(t, err)
		require.Equal(t, half, l.Path)
	}
}

func FuzzParseCache(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte(cacheMagic))
	f.Add(cacheOf(soname, "/a/"+soname))
	f.Add(append([]byte("ld.so-1.7.0\x00"), cacheOf("libc.so.6", "/c", soname, "/a/"+soname)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, file := range parseCache(data, soname) {
			require.True(t, filepath.IsAbs(file))
			require.Contains(t, string(data), soname+"\x00")
			require.Contains(t, string(data), file+"\x00")
		}
	})
}
