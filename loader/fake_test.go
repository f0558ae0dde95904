//go:build linux && (amd64 || arm64) && !nocuda

package loader

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/ccall/testlib"
)

//go:embed testdata/prototypes.h
var prototypesText string

//go:embed testdata/fake.h
var fakeHead string

// prototype is a line of prototypes.h. Its number makes the values that the fake
// function writes and answers its own.
type prototype struct {
	number int
	symbol string
	params []param
}

type param struct{ typ, name string }

// out reports whether the parameter points to a result.
func (p param) out() bool {
	return strings.HasSuffix(p.typ, "*") && p.typ != "void *" && !strings.HasPrefix(p.typ, "const ")
}

func (p param) isHandle() bool { // a pointer, or a pointer to one
	switch strings.TrimSuffix(p.typ, " *") {
	case "CUcontext", "CUstream", "CUevent", "CUgraph", "CUgraphExec", "CUgraphNode", "CUmemoryPool",
		"CUmodule", "CUfunction", "CUhostFn", "CUoccupancyB2DSize", "void", "const void":
		return true
	}
	return p.typ == "void **"
}

func (p param) isIPCHandle() bool { return p.typ == "CUipcEventHandle" || p.typ == "CUipcMemHandle" }

var prototypeLine = regexp.MustCompile(`^CUresult (\w+)\((.*)\);$`)

func prototypes(tb testing.TB) map[string]prototype {
	all := map[string]prototype{}
	for line := range strings.Lines(prototypesText) {
		m := prototypeLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			require.True(tb, strings.HasPrefix(line, "//"), "not a prototype: %s", line)
			continue
		}
		p := prototype{number: len(all) + 1, symbol: m[1]}
		for _, text := range strings.Split(m[2], ", ") {
			if text == "void" {
				continue
			}
			i := strings.LastIndexAny(text, " *") + 1
			p.params = append(p.params, param{typ: strings.TrimSpace(text[:i]), name: text[i:]})
		}
		all[p.symbol] = p
	}
	return all
}

// fakeLibrary compiles a driver library that has only the given symbols.
func fakeLibrary(tb testing.TB, symbols []string) string {
	tb.Helper()
	all := prototypes(tb)
	var b strings.Builder
	b.WriteString(fakeHead)
	for _, symbol := range symbols {
		p, ok := all[symbol]
		require.True(tb, ok, "testdata/prototypes.h lacks %s: copy its declaration from cuda.h", symbol)
		b.WriteString(p.source())
	}
	return testlib.Compile(tb, b.String())
}

// source is the fake function's definition.
func (p prototype) source() string {
	var head, body []string
	for i, a := range p.params {
		head = append(head, a.typ+" "+a.name)
		base := strings.TrimSuffix(a.typ, "*")
		switch {
		case a.typ == "char *":
			body = append(body, fmt.Sprintf("OUT_TEXT(%s, %s, %q);", a.name, p.params[i+1].name, p.symbol))
		case a.typ == "float *":
			body = append(body, fmt.Sprintf("OUT_FLOAT(%s);", a.name))
		case a.typ == "CUuuid *", a.typ == "CUipcEventHandle *", a.typ == "CUipcMemHandle *":
			body = append(body, fmt.Sprintf("OUT_BYTES(%s);", a.name))
		case a.typ == "CUstreamCaptureMode *": // in and out
			body = append(body, fmt.Sprintf("IN(%d, *%s); OUT(%d, %s, %s);", i, a.name, i, a.name, base))
		case a.out() && a.isHandle():
			body = append(body, fmt.Sprintf("OUT_POINTER(%d, %s, %s);", i, a.name, base))
		case a.out():
			body = append(body, fmt.Sprintf("OUT(%d, %s, %s);", i, a.name, base))
		case a.typ == "const char *":
			body = append(body, fmt.Sprintf("IN_TEXT(%s);", a.name))
		case a.typ == "const cuuint64_t *":
			body = append(body, fmt.Sprintf("IN(%d, *%s);", i, a.name))
		case a.typ == "const CUmemAccessDesc *":
			body = append(body, fmt.Sprintf("IN_ACCESS(%s);", a.name))
		case a.typ == "const CUDA_MEMCPY2D *":
			body = append(body, fmt.Sprintf("IN_2D(%s);", a.name))
		case a.isIPCHandle():
			body = append(body, fmt.Sprintf("IN_BYTES(%s);", a.name))
		case a.isHandle():
			body = append(body, fmt.Sprintf("IN_POINTER(%d, %s);", i, a.name))
		default:
			body = append(body, fmt.Sprintf("IN(%d, %s);", i, a.name))
		}
	}
	if head == nil {
		head = []string{"void"}
	}
	return fmt.Sprintf("#undef FAKE_NUMBER\n#define FAKE_NUMBER %d\nCUresult %s(%s) {\n\t%s\n\treturn FAKE_RESULT;\n}\n",
		p.number, p.symbol, strings.Join(head, ", "), strings.Join(body, "\n\t"))
}

// result is what the fake function answers.
func (p prototype) result() driver.Result {
	if p.number%2 != 0 {
		return driver.Result(-p.number - 1000)
	}
	return driver.Result(p.number + 1000)
}

// outValue is what the fake function writes through parameter i.
func (p prototype) outValue(i int) uint64 { return 0xf1e2d3c4b5a60000 + uint64(p.number*16+i) }

// symbols lists the table's symbols that keep accepts, the older names too.
func symbols(keep func(f driver.Function, symbol string) bool) []string {
	var list []string
	for _, f := range driver.Functions {
		for _, symbol := range []string{f.Symbol, f.Else} {
			if symbol != "" && keep(f, symbol) {
				list = append(list, symbol)
			}
		}
	}
	return list
}

func everything(driver.Function, string) bool { return true }

// writeFile makes a file of a test's own and returns its path.
func writeFile(tb testing.TB, name string, data []byte) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), name)
	require.NoError(tb, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(tb, os.WriteFile(path, data, 0o644))
	return path
}
