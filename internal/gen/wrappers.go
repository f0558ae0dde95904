package main

import (
	"bytes"
	"fmt"
	"go/format"
	"strings"
)

// wrappers writes driver/zwrap.go: one closure per function that calls it between
// entering and leaving a scope.
func wrappers(functions []function) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(header + "package driver\n\nimport \"unsafe\"\n\n")
	b.WriteString("// wrap replaces each function of a by a closure that calls it in s, except those that are\n// nil and those that need no scope.\n")
	b.WriteString("func (a *API) wrap(s scope) {\n")
	for _, f := range functions {
		if !f.Unscoped {
			b.WriteString(wrapper(f))
		}
	}
	b.WriteString("}\n")
	return format.Source(b.Bytes())
}

func wrapper(f function) string {
	var params, args, results, given []string
	for i, p := range f.Params {
		args = append(args, fmt.Sprintf("p%d", i))
		params = append(params, args[i]+" "+p.Type)
	}
	for i, r := range append(f.Results[:len(f.Results):len(f.Results)], value{Type: "Result"}) {
		name := fmt.Sprintf("r%d", i)
		if i == len(f.Results) {
			name = "r"
		}
		given = append(given, name)
		results = append(results, name+" "+r.Type)
	}
	return fmt.Sprintf(`	if f := a.%[1]s; f != nil {
		a.%[1]s = func(%[2]s) (%[3]s) {
			was, r := s.enter()
			if r == Success {
				%[4]s = f(%[5]s)
				r = s.leave(was, r)
			}
			return
		}
	}
`, f.Field, strings.Join(params, ", "), strings.Join(results, ", "), strings.Join(given, ", "), strings.Join(args, ", "))
}
