package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// parseLine parses a table of one line.
func parseLine(t *testing.T, line string) ([]function, error) {
	file := filepath.Join(t.TempDir(), "api.go")
	require.NoError(t, os.WriteFile(file, []byte("package driver\ntype API struct {\n\t// A section. More of it.\n\t"+line+"\n}\n"), 0o644))
	return parse(file)
}

func TestLineBecomesBinding(t *testing.T) {
	fs, err := parseLine(t, "Ask func(s Stream) (a, b int32, r Result) `cu:\"cuAsk\" since:\"12000\" else:\"cuOld\" out:\"last\"` // ctx")
	require.NoError(t, err)
	require.Equal(t, []function{{Field: "Ask", Symbol: "cuAsk", Else: "cuOld", Since: 12000, OutLast: true,
		Section: "A section. More of it.", Note: "ctx",
		Params: []value{{"s", "Stream"}}, Results: []value{{"a", "int32"}, {"b", "int32"}}}}, fs)

	text, err := bindings(fs)
	require.NoError(t, err)
	for _, want := range []string{
		`if fn := first(sym, "cuAsk", "cuOld"); fn != 0 {`,
		"api.Ask = func(s driver.Stream) (a int32, b int32, r driver.Result) {",
		"[ccall.MaxArgs]uintptr{uintptr(s), 0, 0}",
		"frame.CallOut(in, 1, 2)",
	} {
		require.Contains(t, string(text), want)
	}
	text, err = stubs(fs)
	require.NoError(t, err)
	require.Contains(t, string(text), "r = ErrorCallRequiresNewerDriver")
	text, err = wrappers(fs)
	require.NoError(t, err)
	for _, want := range []string{
		"if f := a.Ask; f != nil {",
		"a.Ask = func(p0 Stream) (r0 int32, r1 int32, r Result) {",
		"r0, r1, r = f(p0)",
	} {
		require.Contains(t, string(text), want)
	}
	text, err = table(fs)
	require.NoError(t, err)
	require.Contains(t, string(text), "## A section\n")
	require.Contains(t, string(text), "| `Ask` | `cuAsk`, else `cuOld` | 12.0 | ctx |")
}

// What does not fit the simplest call: arguments by address, texts, more
// arguments than a frame has, functions of the host.
func TestLineWithUnusualArguments(t *testing.T) {
	for line, want := range map[string]string{
		"Copy func(c Memcpy2D, s Stream) Result":                           "frame.CallIn(in, 0, unsafe.Pointer(&c), unsafe.Sizeof(c))",
		"Set func(p MemPool, v uint64) Result ref":                         "frame.CallIn(in, 1, unsafe.Pointer(&v), unsafe.Sizeof(v))",
		"Find func(m Module, name string) (f Func, r Result)":              "uintptr(m), uintptr(unsafe.Pointer(&nameText[0]))}",
		"Launch func(a, b, c, d, e, f, g uint32, p unsafe.Pointer) Result": "ccall.Wide{Fn: fn, Arg: [ccall.MaxWideArgs]uintptr{uintptr(a)",
		"LaunchHostFunc func(s Stream, f HostFunc) Result":                 "uintptr(s), hostCallback(), uintptr(f)}",
		"Load func(image unsafe.Pointer, n uint32) (m Module, r Result)":   "runtime.KeepAlive(image)",
	} {
		line, ref := strings.CutSuffix(line, " ref")
		tag := " `cu:\"cuX\" since:\"2000\"`"
		if ref {
			tag = " `cu:\"cuX\" since:\"2000\" ref:\"v\"`"
		}
		fs, err := parseLine(t, line+tag)
		require.NoError(t, err)
		text, err := bindings(fs)
		require.NoError(t, err)
		require.Contains(t, string(text), want)
	}
	for _, line := range []string{
		"A func(c Memcpy2D) (n int32, r Result)",
		"A func(a, b, c, d, e, f, g uint32) (n int32, r Result)",
		"A func(a, b, c, d, e, f, g, h, i, j, k, l, m uint32) Result",
	} {
		fs, err := parseLine(t, line+" `cu:\"cuX\" since:\"2000\"`")
		require.NoError(t, err)
		_, err = bindings(fs)
		require.Error(t, err, line)
	}
}

func TestLineWithoutScope(t *testing.T) {
	fs, err := parseLine(t, "Pop func() (c Context, r Result) `cu:\"cuPop\" since:\"2000\" scope:\"none\"`")
	require.NoError(t, err)
	require.True(t, fs[0].Unscoped)
	text, err := bindings(fs)
	require.NoError(t, err)
	require.Contains(t, string(text), `if fn := sym("cuPop"); in == nil && fn != 0 {`)
	text, err = wrappers(fs)
	require.NoError(t, err)
	require.NotContains(t, string(text), "a.Pop")
}

func TestWrongLinesAreRefused(t *testing.T) {
	for line, want := range map[string]string{
		"Ask func() Result":                                        "a tag",
		"Ask func() Result `cu:\"cuAsk\"`":                         "tags cu and since",
		"Ask func() Result `since:\"2000\"`":                       "tags cu and since",
		"Ask func() `cu:\"cuAsk\" since:\"2000\"`":                 "must be a Result",
		"Ask func() (r Result, n int32) `cu:\"c\" since:\"2000\"`": "must be a Result",
		"A, B func() Result `cu:\"cuAsk\" since:\"2000\"`":         "one name",
	} {
		_, err := parseLine(t, line)
		require.ErrorContains(t, err, want, line)
	}
	fs, err := parseLine(t, "Sleep func(events []Event)")
	require.NoError(t, err)
	require.Empty(t, fs, "no function of the driver")
	fs, err = parseLine(t, "Ask func(a, b int32) (c int32, r Result) `cu:\"cuAsk\" since:\"2000\" inout:\"a\"`")
	require.NoError(t, err)
	_, err = bindings(fs)
	require.ErrorContains(t, err, "inout")
	_, err = parse("absent.go")
	require.Error(t, err)
}
