package main

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLetGo(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "torch_7_8_0")
	before := counterContents(map[int]int64{0: 1, 5: 3, counterCount - 1: 2})
	copy(before, "a header")
	require.NoError(t, os.WriteFile(path, before, 0o600))
	for _, c := range []struct {
		index int
		left  int64
	}{{0, 0}, {5, 2}, {5, 1}, {counterCount - 1, 1}} {
		left, err := letGo(dir, "/torch_7_8_0", c.index)
		require.NoError(t, err)
		require.Equal(t, c.left, left)
	}
	after := counterContents(map[int]int64{5: 1, counterCount - 1: 1})
	copy(after, "a header")
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, after, got)
}

// Several consumers may let go at once.
func TestLetGoAtOnce(t *testing.T) {
	dir := t.TempDir()
	const n = 200
	require.NoError(t, os.WriteFile(filepath.Join(dir, "torch_1"), counterContents(map[int]int64{9: n}), 0o600))
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			_, err := letGo(dir, "/torch_1", 9)
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	_, err := letGo(dir, "/torch_1", 9)
	require.ErrorContains(t, err, "is 0")
}

// What is not as in the PyTorch that this was written for is left alone.
func TestLetGoRefuses(t *testing.T) {
	dir := t.TempDir()
	good := counterContents(map[int]int64{1: 1, 2: -1})
	short := good[:len(good)-8]
	require.NoError(t, os.WriteFile(filepath.Join(dir, "torch_good"), good, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "torch_short"), short, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "other"), good, 0o600))
	for _, c := range []struct {
		name  string
		index int
		says  string
	}{
		{"/torch_good", 0, "is 0"},
		{"/torch_good", 2, "is -1"},
		{"/torch_good", -1, "no number -1"},
		{"/torch_good", counterCount, "no number 10000"},
		{"/torch_short", 1, "80056 bytes"},
		{"/torch_none", 1, "no such file"},
		{"/other", 1, "no name of a file"},
		{"torch_good", 1, "no name of a file"},
		{"/torch_/../other", 1, "no name of a file"},
		{"", 1, "no name of a file"},
	} {
		_, err := letGo(dir, c.name, c.index)
		require.ErrorContains(t, err, c.says, "%v", c)
	}
	for name, want := range map[string][]byte{"torch_good": good, "torch_short": short, "other": good} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestClearUp(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "torch_1")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, clearUp(dir, "/torch_1"))
	require.NoFileExists(t, path)
	require.NoError(t, clearUp(dir, "/torch_1"), "it is gone already")
	require.Error(t, clearUp(dir, "/../torch_1"))
}

// counterContents returns a file with some counters.
func counterContents(values map[int]int64) []byte {
	b := make([]byte, counterSize)
	for i, v := range values {
		binary.NativeEndian.PutUint64(b[counterHeader+8*i:], uint64(v))
	}
	return b
}
