package stress_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// mutant is a mistake in a file, that breaks an invariant and that a test must find.
type mutant struct {
	invariant string
	file      string // below the module's root
	old, new  string
	pkg, run  string // of the tests that find it
}

const (
	refsTests   = "./internal/refs"
	nativeTests = "./internal/native"
	waitTests   = "./internal/wait"
	stressTests = "./internal/stress"
)

var mutants = slices.Concat(eventMutants, memoryMutants)

const root = "../.."

// Each row still fits the code: what it replaces is there once.
func TestMutantsFit(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range mutants {
		text, err := os.ReadFile(filepath.Join(root, m.file))
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(text), m.old), "%q in %s, of %q", m.old, m.file, m.invariant)
		require.False(t, seen[m.invariant], m.invariant)
		seen[m.invariant] = true
		_, err = regexp.Compile(m.run)
		require.NoError(t, err)
	}
}

// Each mutant is found by the tests that say so. It takes minutes, so it is for
// PURECUDA_MUTANTS=1 only, or for the mutants that match another value.
func TestMutants(t *testing.T) {
	which := os.Getenv("PURECUDA_MUTANTS")
	if which == "" {
		t.Skip("PURECUDA_MUTANTS is not set")
	}
	if which == "1" {
		which = "."
	}
	chosen, err := regexp.Compile(which)
	require.NoError(t, err)
	for _, m := range mutants {
		if chosen.MatchString(m.invariant) {
			t.Run(m.invariant, m.mustBeFound)
		}
	}
}

func (m mutant) mustBeFound(t *testing.T) {
	file, err := filepath.Abs(filepath.Join(root, m.file))
	require.NoError(t, err)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), m.old))
	mutated, overlay := filepath.Join(t.TempDir(), "mutated.go"), filepath.Join(t.TempDir(), "overlay.json")
	require.NoError(t, os.WriteFile(mutated, []byte(strings.Replace(string(text), m.old, m.new, 1)), 0o600))
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: mutated}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, replace, 0o600))

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-vet=off", "-failfast", "-timeout=60s", "-overlay="+overlay, "-run="+m.run, m.pkg)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "PURECUDA_TEST_PATIENCE=4")
	began := time.Now()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		t.Fatalf("survives\n%s", out)
	case !errors.As(err, &exit) || strings.Contains(string(out), "[build failed]") || strings.Contains(string(out), "[setup failed]"):
		t.Fatalf("%v\n%s", err, out)
	}
	found := regexp.MustCompile(`(?m)^ *--- FAIL: .*|^panic: .*|^fatal error: .*`).FindAllString(string(out), -1)
	if len(found) == 0 {
		t.Fatalf("no test has failed\n%s", out)
	}
	t.Logf("found in %.1f s: %s", time.Since(began).Seconds(), strings.TrimSpace(found[len(found)-1]))
}
