package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:generate go run . ../docs

// These two lines in a page have between them what is generated.
const (
	generatedBegin = "<!-- Made from performance.json by go generate ./bench, until the next such line. -->\n"
	generatedEnd   = "<!-- Here ends what is made from performance.json. -->\n"
)

// readResults reads a performance.json.
func readResults(name string) (*results, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	r := new(results)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}

// writeResults writes a performance.json, with a line for each of the rows.
func writeResults(r *results, name string) error {
	lines := make([]string, len(r.Rows))
	for i, m := range r.Rows {
		line, err := json.Marshal(m)
		if err != nil {
			return err
		}
		lines[i] = "    " + string(line)
	}
	frame := *r
	frame.Rows = []measured{}
	text, err := json.MarshalIndent(frame, "", "  ")
	if err != nil {
		return err
	}
	if len(lines) > 0 {
		rows := "\"rows\": [\n" + strings.Join(lines, ",\n") + "\n  ]"
		text = bytes.Replace(text, []byte(`"rows": []`), []byte(rows), 1)
	}
	return os.WriteFile(name, append(text, '\n'), 0o666)
}

// render writes what r says for people to the folder dir: performance.md, tables
// without a title, and performance.svg, a chart.
func render(r *results, dir string) error { return writePage(dir, markdown(r), r) }

// renderDocs brings performance.md in the folder dir, between its marker lines, and
// performance.svg to what performance.json there says.
func renderDocs(dir string) error {
	r, err := readResults(filepath.Join(dir, "performance.json"))
	if err != nil {
		return err
	}
	name := filepath.Join(dir, "performance.md")
	page, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	text, err := replaceGenerated(string(page), markdown(r))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return writePage(dir, text, r)
}

func writePage(dir, text string, r *results) error {
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "performance.md"), []byte(text), 0o666),
		os.WriteFile(filepath.Join(dir, "performance.svg"), []byte(chart(r)), 0o666),
	)
}

// replaceGenerated puts text between the two marker lines of page.
func replaceGenerated(page, text string) (string, error) {
	before, rest, ok := strings.Cut(page, generatedBegin)
	_, after, closed := strings.Cut(rest, generatedEnd)
	if !ok || !closed {
		return "", fmt.Errorf("lacks the line %q, or %q after it", strings.TrimSpace(generatedBegin), strings.TrimSpace(generatedEnd))
	}
	return before + generatedBegin + "\n" + text + "\n" + generatedEnd + after, nil
}
