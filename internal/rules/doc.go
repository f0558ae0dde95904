// Package rules has no code but tests: those of the numbered rules of docs/semantics.md, in
// subtests named "rule 07 ...", on the simulated GPU and on a real one where there is one.
package rules
