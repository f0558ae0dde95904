// Package callsite names the lines of a user's code from which calls of a driver's table come.
package callsite

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Site is where a call came from: the return addresses on its stack.
type Site [32]uintptr

// Caller returns the call of the function that calls Caller.
func Caller() (s Site) {
	runtime.Callers(3, s[:])
	return s
}

// Module is the path of this module.
const Module = "github.com/purecuda/cuda"

// library reports whether a function is of this module's library, and not of its programs.
func library(function string) bool {
	name, ok := strings.CutPrefix(function, Module)
	return ok && (name[0] == '.' || name[0] == '/') && !strings.HasPrefix(name, "/cmd/") && !strings.HasPrefix(name, "/examples/")
}

// goes reports whether a function is Go's own, and may call whatever it is given.
func goes(function string) bool {
	name, _, _ := strings.Cut(function, ".")
	return name == "" || name == "runtime" || name == "reflect" || name == "sync" || name == "testing"
}

// String names the line that called package cuda, or the table where that is not in
// between: wrappers of the table, which may call by reflection, are no answer. What the
// library does in the background has only lines of its own.
func (s Site) String() string {
	frames := runtime.CallersFrames(s[:slices.Index(append(s[:], 0), 0)])
	user, own, throughCuda := "", "an unknown place", false
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		line := fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
		switch {
		case !strings.HasSuffix(f.File, "_test.go") && library(f.Function):
			own = line
			throughCuda = throughCuda || strings.HasPrefix(f.Function, Module+".")
		case goes(f.Function):
		case throughCuda:
			return line
		case user == "":
			user = line
		}
	}
	if user != "" {
		return user
	}
	return own
}
