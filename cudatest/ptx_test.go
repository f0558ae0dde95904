package cudatest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/kernels"
)

// ptxHead is how texts begin; the line behind it is the fourth.
const ptxHead = ".version 8.0\n.target sm_90a, debug\n.address_size 64\n"

func TestPTX(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want entry
	}{
		"nothing":         {".entry k() { ret; }", entry{}},
		"no list":         {".visible .entry k { ret; }", entry{}},
		"scalars":         {".entry k(.param .u32 a, .param .u64 b, .param .b8 c, .param .f64 d) { ret; }", entry{params: []param{{0, 4}, {8, 8}, {16, 1}, {24, 8}}, size: 32}},
		"without spaces":  {".visible.entry k(.param.u16 a,.param.f16x2 b){ret;}", entry{params: []param{{0, 2}, {4, 4}}, size: 8}},
		"a struct":        {".entry k(.param .u8 a, .param .align 16 .b8 b[24], .param .align 4 .b8 c[3]) { ret; }", entry{params: []param{{0, 1}, {16, 24}, {40, 3}}, size: 43}},
		"pointers":        {".entry k(.param .u64 .ptr .global .align 16 a, .param .u64 .ptr b) { ret; }", entry{params: []param{{0, 8}, {8, 8}}, size: 16}},
		"a vector":        {".entry k(.param .u8 a, .param .v4 .f32 b) { ret; }", entry{params: []param{{0, 1}, {16, 16}}, size: 32}},
		"a texture":       {".entry k(.param .texref a) { ret; }", entry{params: []param{{0, 8}}, size: 8}},
		"launch bounds":   {".entry k()\n.maxntid 16, 8, 2\n.minnctapersm 2\n{ ret; }", entry{maxThreads: 256}},
		"shared memory":   {".entry k() { .shared .align 16 .b8 a[5]; { .shared .f32 b[2][3]; } .extern .shared .b8 c[]; ret; }", entry{shared: 32}},
		"comments":        {"// .entry x(\n/* .entry y( \n */ .entry k(/**/) // {\n { ret; }", entry{}},
		"other things":    {".file 1 \"a.cu\", 1, 2\n.global .align 4 .u32 g[2] = {1, 2};\n.func (.param .b32 r) f(.param .b32 a) { ret; }\n.func g();\n.section .debug { .b8 1 }\n.entry k() { ret; }", entry{}},
		"labels, vectors": {".entry k() {\n.reg .pred %p<2>;\n.loc 1 2 3\n$L1:\n@!%p1 bra $L1;\nld.param.v2.f32 {%f1, %f2}, [x+16];\n.pragma \"nounroll\";\ncall (r), f, (a);\nret;\n}", entry{}},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := parsePTX(ptxHead+c.text, 90)
			require.Nil(t, err)
			if c.want.maxThreads == 0 {
				c.want.maxThreads = maxThreads
			}
			require.Len(t, m.entries, 1)
			require.Equal(t, &c.want, m.entries["k"])
			require.Equal(t, 80, m.version)
			require.Equal(t, 90, m.target)
		})
	}
}

func TestPTXErrors(t *testing.T) {
	for text, want := range map[string]string{
		".target sm_50":                                                    "line 1; fatal   : Missing .version directive",
		".version x":                                                       "line 1; fatal   : Parsing error near 'x': syntax error",
		".version 9.1":                                                     "line 1; fatal   : Unsupported .version 9.1; current version is '9.0'",
		".version 8.0\n.target sm_200":                                     "line 2; fatal   : Unsupported .target 'sm_200'",
		ptxHead + ".entry @k() { ret; }":                                   "line 4; fatal   : Parsing error near '@': syntax error",
		ptxHead + ".entry k(.param .u32) {}":                               "near ')'",
		ptxHead + ".entry k(.param .u7 a) {}":                              "near '.u7'",
		ptxHead + ".entry k(.param .u32 a .param":                          "near '.param'",
		ptxHead + ".entry k(.reg .u32 a) {}":                               "near '.reg'",
		ptxHead + ".entry k(.param .b8 a[0]) {}":                           "parameter space overflowed",
		ptxHead + ".entry k(.param .b8 a[32765])":                          "parameter space overflowed",
		ptxHead + ".entry k(.param .align 3 .b8 a":                         "near '.align'",
		ptxHead + ".entry k() {\n\n ret }":                                 "line 6; fatal   : Parsing error near '}'",
		ptxHead + ".entry k() {\n# }":                                      "line 5; fatal   : Parsing error near '#'",
		ptxHead + ".entry k() {\n , ; }":                                   "line 5; fatal   : Parsing error near ','",
		ptxHead + ".entry k() {\n\n":                                       "line 6; fatal   : Parsing error near ''",
		ptxHead + ".entry k() { ret; }\nentry":                             "line 5; fatal   : Parsing error near 'entry'",
		ptxHead + ".entry k() {}\n.entry k() {}":                           "line 5; fatal   : Duplicate definition",
		ptxHead + ".entry k() { .shared .b8 s[49153]; }":                   "too much shared data",
		ptxHead + ".entry k() { .shared .b64 s[1000000][1000000][1000]; }": "too large",
		ptxHead + ".file 1 \"unterminated\n.entry k() {}":                  "line 4; fatal   : Parsing error near '\"'",
	} {
		_, err := parsePTX(text, 90)
		require.NotNil(t, err, text)
		require.Contains(t, err.Error(), want, text)
	}
}

// The messages are a real driver's to the byte.
func TestPTXErrorText(t *testing.T) {
	syntax := &ptxError{991, "Parsing error near '@': syntax error", driver.ErrorInvalidPTX}
	require.Equal(t, "ptxas application ptx input, line 991; fatal   : Parsing error near '@': syntax error\n"+
		"ptxas fatal   : Ptx assembly aborted due to errors", syntax.Error())
	require.Len(t, syntax.Error(), 136)
	_, err := parsePTX("\n\n\n\n\n\n\n\n.version 99.0", 90)
	require.Len(t, err.Error(), 98)
}

func TestPTXOfOurKernels(t *testing.T) {
	m, err := parsePTX(kernels.PTX, ptxVersion(driver.Floor))
	require.Nil(t, err)
	registered := builtins(&Config{})
	require.Len(t, m.entries, len(registered))
	for name := range registered {
		require.Contains(t, m.entries, name)
	}
	require.Equal(t, []param{{0, 8}, {8, 8}, {16, 4}}, m.entries["purecuda_fill"].params)
	require.Equal(t, &entry{params: []param{{0, 32}}, size: 32, maxThreads: maxThreads}, m.entries["purecuda_affine"])
	matmul := m.entries["purecuda_matmul"]
	require.Equal(t, 256, matmul.maxThreads)
	require.Equal(t, 4*16*(68+64), matmul.shared)
}

func TestPTXVersions(t *testing.T) {
	for cuda, want := range map[int]int{11040: 74, 11080: 78, 12000: 80, 12040: 84, 12050: 85, 12060: 85, 12080: 87, 12090: 88, 13000: 90, 13010: 91} {
		require.Equal(t, want, ptxVersion(cuda), cuda)
	}
}

func FuzzPTX(f *testing.F) {
	f.Add(kernels.PTX)
	f.Add(ptxHead + ".entry k(.param .align 8 .b8 a[32], .param .v2 .u8 b)\n.maxntid 1,2,3 { .shared .b8 s[4]; ret; }")
	f.Add(ptxHead + ".func f(.param .b32 a); .section .x { } .file 1 \"a\"\n.loc 1 1 1 /* ")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parsePTX(text, 90)
		if err != nil {
			if err.line < 1 || err.line > 1+strings.Count(text, "\n") {
				t.Fatalf("line %d", err.line)
			}
			return
		}
		for name, e := range m.entries {
			end := 0
			for _, p := range e.params {
				if p.offset < end || p.size <= 0 {
					t.Fatalf("%q: %+v", name, e)
				}
				end = p.offset + p.size
			}
			if name == "" || end != e.size || e.size > maxParamBytes || e.shared > maxStaticBytes || e.maxThreads < 1 || e.maxThreads > maxThreads {
				t.Fatalf("%q: %+v", name, e)
			}
		}
	})
}
