package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// invented returns results that nobody has measured.
func invented(t *testing.T) *results {
	r, err := readResults(filepath.Join("testdata", "invented.json"))
	require.NoError(t, err)
	require.Equal(t, "invented", r.Machine.Device)
	return r
}

// What is invented has to have the fields that a run has.
func TestInventedResultsAreOfTheModel(t *testing.T) {
	file, err := os.Open(filepath.Join("testdata", "invented.json"))
	require.NoError(t, err)
	defer file.Close()
	d := json.NewDecoder(file)
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(new(results)))
}

// Each row of measurements is a line, and nothing else differs from plain JSON.
func TestWriteResults(t *testing.T) {
	name := filepath.Join(t.TempDir(), "performance.json")
	r := invented(t)
	for range 2 {
		require.NoError(t, writeResults(r, name))
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, len(r.Rows), strings.Count(string(text), "\n    {\"row\":"))
		require.Contains(t, string(text), "\n  \"rows\": [")
		got, err := readResults(name)
		require.NoError(t, err)
		require.Equal(t, r.Rows, got.Rows)
		require.Equal(t, r, got)
		r.Rows = []measured{}
	}
}

func TestRender(t *testing.T) {
	dir := t.TempDir()
	r := invented(t)
	require.NoError(t, render(r, dir))
	text, err := os.ReadFile(filepath.Join(dir, "performance.md"))
	require.NoError(t, err)
	require.Equal(t, markdown(r), string(text))
	text, err = os.ReadFile(filepath.Join(dir, "performance.svg"))
	require.NoError(t, err)
	require.Equal(t, chart(r), string(text))
	require.Error(t, render(r, filepath.Join(dir, "missing")))
}

func TestRenderDocs(t *testing.T) {
	dir := t.TempDir()
	require.ErrorIs(t, renderDocs(dir), fs.ErrNotExist)
	text, err := os.ReadFile(filepath.Join("testdata", "invented.json"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "performance.json"), text, 0o666))
	require.ErrorIs(t, renderDocs(dir), fs.ErrNotExist)

	page := filepath.Join(dir, "performance.md")
	for _, unmarked := range []string{"", "before\n" + generatedBegin + "no end\n", generatedEnd + generatedBegin} {
		require.NoError(t, os.WriteFile(page, []byte(unmarked), 0o666))
		require.ErrorContains(t, renderDocs(dir), "lacks the line")
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		require.Equal(t, unmarked, string(text))
	}

	require.NoError(t, os.WriteFile(page, []byte("before\n"+generatedBegin+"old\n"+generatedEnd+"after\n"), 0o666))
	for range 2 {
		require.NoError(t, renderDocs(dir))
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(text), "before\n"+generatedBegin+"\n2001-02-03 04:05 UTC, invented"))
		require.True(t, strings.HasSuffix(string(text), "|\n\n"+generatedEnd+"after\n"))
		require.NotContains(t, string(text), "old\n")
	}
}

// The page in docs says what docs/performance.json says.
func TestDocsAreUpToDate(t *testing.T) {
	docs := filepath.Join("..", "docs")
	page, err := os.ReadFile(filepath.Join(docs, "performance.md"))
	require.NoError(t, err)
	_, err = replaceGenerated(string(page), "")
	require.NoError(t, err)

	r, err := readResults(filepath.Join(docs, "performance.json"))
	require.NoError(t, err)
	want, err := replaceGenerated(string(page), markdown(r))
	require.NoError(t, err)
	require.True(t, want == string(page), "performance.md: run go generate ./bench") // without two pages in the message
	picture, err := os.ReadFile(filepath.Join(docs, "performance.svg"))
	require.NoError(t, err)
	require.True(t, chart(r) == string(picture), "performance.svg: run go generate ./bench")
}
