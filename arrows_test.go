package cuda_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	module = "github.com/purecuda/cuda"
	purego = "github.com/ebitengine/purego"
)

// A pkg is what the go command says of one package.
type pkg struct {
	ImportPath string
	Standard   bool
	Imports    []string // direct
	Deps       []string // all, tests' not
}

// list returns the module's packages and all that they need, by import path, as
// they are on a platform. Test binaries also run on machines that have no Go.
func list(t *testing.T, goos, goarch string, flags ...string) map[string]pkg {
	t.Helper()
	goCommand, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command here")
	}
	cmd := exec.Command(goCommand, append([]string{"list", "-deps", "-json=ImportPath,Standard,Imports,Deps"}, flags...)...)
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

// within reports whether path is the package or module root or lies below it.
func within(path, root string) bool {
	return path == root || strings.HasPrefix(path, root+"/")
}

// The arrows between the packages: which may import which.
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
	for _, name := range []string{module, module + "/driver", module + "/cudatest", module + "/loader", module + "/ipc"} {
		require.Contains(t, pkgs, name)
	}
	for _, dep := range pkgs[module+"/driver"].Deps {
		require.True(t, pkgs[dep].Standard, "driver imports only the standard library, but reaches %s", dep)
	}
	for _, dep := range pkgs[module+"/cudatest"].Deps {
		require.True(t, pkgs[dep].Standard || dep == module+"/driver" || dep == module+"/internal/kernels" || within(dep, module+"/cudatest"),
			"cudatest needs the contract and kernels only, but reaches %s", dep)
	}
	for _, dep := range pkgs[module+"/internal/proc"].Deps {
		require.True(t, pkgs[dep].Standard || dep == module+"/driver", "internal/proc needs the contract only, but reaches %s", dep)
	}
	require.NotContains(t, pkgs[module].Deps, module+"/ipc", "ipc is built on package cuda, and not the reverse")
	for _, dep := range pkgs[module+"/internal/kernels"].Deps {
		require.True(t, pkgs[dep].Standard, "kernels are text, but reach %s", dep)
	}
	for _, imported := range pkgs[module+"/internal/bench"].Imports {
		require.True(t, pkgs[imported].Standard || slices.Contains([]string{module, module + "/driver", module + "/internal/kernels"}, imported),
			"what is measured is package cuda and the table, but internal/bench imports %s", imported)
	}
	for path, p := range pkgs {
		require.True(t, p.Standard || within(path, module) || within(path, purego),
			"purego is the only other module that a program gets, but %s is needed too", path)
		if !within(path, module) {
			continue
		}
		for _, imported := range p.Imports {
			switch {
			case imported == module+"/loader":
				require.Equal(t, module, path, "only package cuda imports loader")
			case imported == module+"/internal/proc":
				require.Contains(t, []string{module, module + "/ipc"}, path, "processes are watched for events and sessions")
			case imported == module+"/internal/ccall":
				require.Equal(t, module+"/loader", path, "only loader imports internal/ccall")
			case within(imported, purego):
				require.Contains(t, []string{module + "/loader", module + "/internal/ccall", module + "/bench"}, path,
					"purego stays in loader and internal/ccall, and where it is what is measured")
			}
		}
	}
}

// With the tag nocuda a program needs no C library, so nothing may link purego.
func TestArrowsWithoutCUDA(t *testing.T) {
	t.Parallel()
	for path := range list(t, "linux", "amd64", "-tags=nocuda") {
		require.False(t, within(path, purego), "-tags nocuda, yet %s is linked", path)
	}
}
