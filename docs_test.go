package cuda_test

import (
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var codeBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// The whole programs and tests in the documentation are gofmt'ed, compile and
// run. A block that does not begin with a package clause is a fragment.
func TestDocumentedPrograms(t *testing.T) {
	goCommand, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command here")
	}
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	found := 0
	for _, page := range append(pages, "README.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, block := range codeBlock.FindAllStringSubmatch(string(text), -1) {
			source := block[1]
			clause, _, _ := strings.Cut(source, "\n")
			name, ok := strings.CutPrefix(clause, "package ")
			if !ok {
				continue
			}
			found++
			t.Run(page+" "+name, func(t *testing.T) {
				formatted, err := format.Source([]byte(source))
				require.NoError(t, err)
				require.Equal(t, string(formatted), source, "not gofmt'ed")
				file, args := "main.go", []string{"run"}
				if strings.HasSuffix(name, "_test") {
					file, args = "page_test.go", []string{"test"}
				}
				path := filepath.Join(t.TempDir(), file)
				require.NoError(t, os.WriteFile(path, []byte(source), 0o600))
				out, err := exec.Command(goCommand, append(args, path)...).CombinedOutput()
				require.NoError(t, err, "%s", out)
				t.Logf("%s", out)
			})
		}
	}
	require.GreaterOrEqual(t, found, 3, "programs in the documentation")
}
