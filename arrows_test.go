package cuda_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	module = "github.com/purecuda/cuda"
	purego = "github.com/ebitengine/purego"

	// testsOnly is for tests alone, and imports what it likes.
	testsOnly = module + "/internal/testgpu"
)

// A pkg is what the go command says of one package.
type pkg struct {
	ImportPath string
	Standard   bool
	Imports    []string // direct, tests' not
}

// list returns the module's packages and all that they need, by import path, as
// they are on a platform. Test binaries also run on machines that have no Go.
func list(t *testing.T, goos, goarch string, flags ...string) map[string]pkg {
	t.Helper()
	goCommand, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command here")
	}
	cmd := exec.Command(goCommand, append([]string{"list", "-deps", "-json=ImportPath,Standard,Imports"}, flags...)...)
	cmd.Args = append(cmd.Args, module+"/...")
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%v: %s", cmd, &stderr)

	pkgs := make(map[string]pkg)
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return pkgs
		}
		require.NoError(t, err)
		pkgs[p.ImportPath] = p
	}
}

// within reports whether a package is root, a package or a module, or lies below it.
func within(importPath, root string) bool {
	return importPath == root || strings.HasPrefix(importPath, root+"/")
}

// The packages of this module, and what each may import beside the standard library:
// packages of this module, named from its root, and purego. A package may be imported only by
// those that list it here.
var arrows = map[string][]string{
	// Package cuda and what it is made of. The root is "".
	"":                {"driver", "loader", "internal/native", "internal/kargs", "internal/image", "internal/wait", "internal/races"},
	"driver":          {},
	"loader":          {"driver", "internal/ccall", purego},
	"internal/ccall":  {purego},
	"internal/native": {"driver", "internal/refs", "internal/wait", "internal/proc"},
	"internal/refs":   {},
	"internal/wait":   {},
	"internal/proc":   {"driver"},
	"internal/kargs":  {"driver"},
	"internal/image":  {"driver"},

	// What is built on it, or beside it.
	"ipc":                {"", "driver", "internal/proc"},
	"cudatest":           {"driver", "internal/kernels", "internal/order", "internal/races", "internal/callsite"},
	"cudatest/simulated": {"", "cudatest"},
	"driver/drivertest":  {"driver", "internal/kernels"},
	"internal/kernels":   {},
	"internal/order":     {},
	"internal/races":     {"driver", "internal/order", "internal/callsite"},
	"internal/callsite":  {},
	"internal/bench":     {"", "driver", "internal/kernels"},

	// Programs.
	"cmd/purecuda":           {"", "driver", "cudatest", "internal/bench", "internal/kernels"},
	"bench":                  {"", "driver", "internal/bench", "internal/kernels", purego},
	"examples/event-ipc":     {"", "cudatest", "ipc"},
	"examples/ring":          {"", "cudatest", "ipc"},
	"examples/torch-ipc":     {"", "driver", "ipc"},
	"internal/gen":           {},
	"internal/ccall/testlib": {},

	// Tests alone.
	"internal/rules":  {},
	"internal/stress": {},
}

// TestArrows checks that no package imports what it may not.
func TestArrows(t *testing.T) {
	for _, platform := range []struct{ goos, goarch string }{
		{"linux", "amd64"}, {"linux", "arm64"}, {"windows", "amd64"}, {"darwin", "arm64"},
	} {
		t.Run(platform.goos+"/"+platform.goarch, func(t *testing.T) {
			t.Parallel()
			testArrows(t, list(t, platform.goos, platform.goarch))
		})
	}
}

func testArrows(t *testing.T, pkgs map[string]pkg) {
	for name := range arrows {
		require.Contains(t, pkgs, path.Join(module, name))
	}
	require.NotContains(t, pkgs[module+"/cudatest"].Imports, "testing", "programs that simulate a GPU need no package testing")
	needed := map[string]bool{} // by anything but tests
	var need func(importPath string)
	need = func(importPath string) {
		if !needed[importPath] {
			needed[importPath] = true
			for _, imported := range pkgs[importPath].Imports {
				need(imported)
			}
		}
	}
	for importPath := range pkgs {
		if within(importPath, module) && importPath != testsOnly {
			need(importPath)
		}
	}
	require.NotContains(t, needed, testsOnly, "only tests may import it")
	for from := range needed {
		p := pkgs[from]
		switch {
		case p.Standard || within(from, purego):
			continue
		case !within(from, module):
			require.Fail(t, "purego is the only other module that a program gets", "%s is needed too", from)
		}
		name := short(from)
		may, ok := arrows[name]
		require.True(t, ok, "say in the table what %s may import", from)
		for _, imported := range p.Imports {
			if !pkgs[imported].Standard {
				require.Contains(t, may, short(imported), "%s may not import %s", from, imported)
			}
		}
	}
}

// short returns the name that a package has in the table.
func short(importPath string) string {
	switch {
	case within(importPath, purego):
		return purego
	case importPath == module:
		return ""
	}
	return strings.TrimPrefix(importPath, module+"/")
}

// TestStructsAreSmall checks that no struct of the core has more than a dozen fields: more
// is more than one thing.
func TestStructsAreSmall(t *testing.T) {
	for _, dir := range []string{".", "internal/native", "internal/wait", "internal/refs"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			require.NoError(t, err)
			ast.Inspect(file, func(n ast.Node) bool {
				if s, ok := n.(*ast.StructType); ok {
					require.LessOrEqual(t, s.Fields.NumFields(), 12, "a struct in %s", name)
				}
				return true
			})
		}
	}
}

// With the tag nocuda a program needs no C library, so nothing may link purego.
func TestArrowsWithoutCUDA(t *testing.T) {
	t.Parallel()
	for importPath := range list(t, "linux", "amd64", "-tags=nocuda") {
		require.False(t, within(importPath, purego), "-tags nocuda, yet %s is linked", importPath)
	}
}
