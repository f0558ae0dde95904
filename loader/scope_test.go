//go:build linux && (amd64 || arm64) && !nocuda

package loader

import (
	_ "embed"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/ccall"
	"github.com/purecuda/cuda/internal/ccall/testlib"
)

//go:embed testdata/scopes.h
var scopesHead string

// scopes is a driver library that notes its calls.
type scopes struct {
	sym     func(name string) uintptr
	symbols []string
}

// openScopes returns the library, and a table of it. It lacks what skip names.
func openScopes(tb testing.TB, skip ...string) (*scopes, *driver.API) {
	tb.Helper()
	var b strings.Builder
	b.WriteString(scopesHead)
	s := &scopes{symbols: symbols(func(_ driver.Function, symbol string) bool { return !slices.Contains(skip, symbol) })}
	for i, symbol := range s.symbols {
		kind := "NOTE"
		switch symbol {
		case "cuCtxPushCurrent_v2":
			kind = "PUSH"
		case "cuCtxPopCurrent_v2":
			kind = "POP"
		case "cuThreadExchangeStreamCaptureMode":
			kind = "EXCHANGE"
		}
		fmt.Fprintf(&b, "%s(%d, %s)\n", kind, i, symbol)
	}
	handle, err := purego.Dlopen(testlib.Compile(tb, b.String()), purego.RTLD_NOW|purego.RTLD_LOCAL)
	require.NoError(tb, err)
	s.sym = func(name string) uintptr {
		fn, err := purego.Dlsym(handle, name)
		if err != nil {
			return 0
		}
		return fn
	}
	api, err := table("a library", s.sym)
	require.NoError(tb, err)
	return s, api
}

func (s *scopes) call(name string, args ...uintptr) int32 {
	f := ccall.Frame{Fn: s.sym(name)}
	copy(f.Arg[:], args)
	return f.Call(nil)
}

// answer has a function answer r from now on.
func (s *scopes) answer(symbol string, r driver.Result) {
	s.call("fake_answer", uintptr(slices.Index(s.symbols, symbol)), uintptr(r))
}

// takeCalls returns what was called since the last time, each with the context that was
// current and the mode, and has the thread begin anew.
func (s *scopes) takeCalls() (calls []string) {
	for i := range s.call("fake_calls") {
		var words [3]uint64
		for j := range words {
			f := ccall.Frame{Fn: s.sym("fake_get"), Arg: [ccall.MaxArgs]uintptr{0, uintptr(i), uintptr(j)}}
			f.CallOut(nil, 0, 1)
			words[j] = f.Out[0]
		}
		calls = append(calls, fmt.Sprintf("%s %d %d", s.symbols[words[0]], words[1], words[2]))
	}
	s.call("fake_begin")
	return calls
}

const push, pop, exchange = "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuThreadExchangeStreamCaptureMode"

// scopeTables are the ways to make tables, with what they call before and after a function
// that finds the state between.
var scopeTables = map[string]struct {
	of     func(a *driver.API) *driver.API
	before []string
	state  string
	after  []string
}{
	"neither": {func(a *driver.API) *driver.API { return a }, nil, " 0 0", nil},
	"bound":   {func(a *driver.API) *driver.API { return a.Bound(5) }, []string{push + " 0 0"}, " 5 0", []string{pop + " 0 0"}},
	"quiet": {func(a *driver.API) *driver.API { return a.Quiet() }, []string{exchange + " 0 0"}, " 0 2",
		[]string{exchange + " 0 2"}},
	"bound, then quiet": {func(a *driver.API) *driver.API { return a.Bound(5).Quiet() },
		[]string{exchange + " 0 0", push + " 0 2"}, " 5 2", []string{pop + " 0 2", exchange + " 0 2"}},
	"quiet, then bound": {func(a *driver.API) *driver.API { return a.Quiet().Bound(5) },
		[]string{push + " 0 0", exchange + " 5 0"}, " 5 2", []string{exchange + " 5 2", pop + " 0 0"}},
	"three": {func(a *driver.API) *driver.API { return a.Bound(5).Quiet().Bound(6) },
		[]string{push + " 0 0", exchange + " 6 0", push + " 6 2"}, " 5 2",
		[]string{pop + " 6 2", exchange + " 6 2", pop + " 0 0"}},
}

// around is what is called for symbols by a table.
func around(name string, symbols ...string) []string {
	test := scopeTables[name]
	calls := slices.Clone(test.before)
	for _, symbol := range symbols {
		calls = append(calls, symbol+test.state)
	}
	return append(calls, test.after...)
}

// Every function finds the state that it is promised, and its result comes back.
func TestEveryFunctionInScopes(t *testing.T) {
	s, api := openScopes(t)
	for name, test := range scopeTables {
		t.Run(name, func(t *testing.T) {
			made := test.of(api)
			require.Equal(t, api.Source, made.Source)
			table := reflect.ValueOf(made).Elem()
			for _, f := range driver.Functions {
				want := around(name, f.Symbol)
				switch f.Field {
				case "CtxPopCurrent":
					continue // it wants a push
				case "Init", "DriverGetVersion", "CtxPushCurrent", "CtxGetCurrent", "ThreadExchangeStreamCaptureMode":
					want = around("neither", f.Symbol)
				}
				s.answer(f.Symbol, 99)
				fn := table.FieldByName(f.Field)
				args := make([]reflect.Value, fn.Type().NumIn())
				for i := range args {
					args[i] = reflect.Zero(fn.Type().In(i))
				}
				results := fn.Call(args)
				s.answer(f.Symbol, 0)
				require.Equal(t, driver.Result(99), results[len(results)-1].Interface(), f.Field)
				require.Equal(t, want, s.takeCalls())
			}
			require.Equal(t, driver.Success, made.CtxPushCurrent(7))
			_, r := made.CtxPopCurrent()
			require.Equal(t, driver.Success, r)
			require.Equal(t, []string{push + " 0 0", pop + " 0 0"}, s.takeCalls())
		})
	}
}

// What is fused stays so in scopes, up to the second.
func TestFusedInScopes(t *testing.T) {
	s, api := openScopes(t)
	for name, test := range scopeTables {
		made := test.of(api)
		if name == "three" {
			require.Nil(t, made.Fused)
			continue
		}
		require.NotNil(t, made.Fused, name)
		require.Equal(t, driver.Success, made.Fused.RecordWait(1, 2, 3))
		require.Equal(t, around(name, "cuEventRecord", "cuStreamWaitEvent"), s.takeCalls(), name)

		wrapped := *made
		require.NoError(t, wrapped.Complete())
		require.NotNil(t, wrapped.Fused, name)
		wrapped.EventQuery = func(driver.Event) driver.Result { return 77 }
		require.Equal(t, driver.Result(77), wrapped.Bound(8).EventQuery(1))
		require.Equal(t, []string{push + " 0 0", pop + " 0 0"}, s.takeCalls(), name)
		require.NoError(t, wrapped.Complete())
		require.Nil(t, wrapped.Fused, name)
	}
}

func TestResultsInScopes(t *testing.T) {
	s, api := openScopes(t)
	const query = "cuEventQuery"
	for _, test := range []struct {
		table   string
		answers map[string]driver.Result
		result  driver.Result
		calls   []string
	}{
		{"bound", map[string]driver.Result{push: 3, query: 4}, 3, []string{push + " 0 0"}},
		{"bound", map[string]driver.Result{pop: 3}, 3, around("bound", query)},
		{"bound", map[string]driver.Result{pop: 3, query: 4}, 4, around("bound", query)},
		{"quiet", map[string]driver.Result{exchange: 3}, 0, []string{exchange + " 0 0", query + " 0 0"}},
		{"quiet", map[string]driver.Result{exchange: 3, query: 4}, 4, []string{exchange + " 0 0", query + " 0 0"}},
		{"bound, then quiet", map[string]driver.Result{push: 3}, 3,
			[]string{exchange + " 0 0", push + " 0 2", exchange + " 0 2"}},
		{"bound, then quiet", map[string]driver.Result{pop: 3}, 3, around("bound, then quiet", query)},
		{"bound, then quiet", map[string]driver.Result{exchange: 3, query: 4}, 4,
			[]string{exchange + " 0 0", push + " 0 0", query + " 5 0", pop + " 0 0"}},
		{"quiet, then bound", map[string]driver.Result{push: 3}, 3, []string{push + " 0 0"}},
		{"quiet, then bound", map[string]driver.Result{exchange: 3, pop: 5}, 5,
			[]string{push + " 0 0", exchange + " 5 0", query + " 5 0", pop + " 0 0"}},
	} {
		for symbol, r := range test.answers {
			s.answer(symbol, r)
		}
		made := scopeTables[test.table].of(api)
		require.Equal(t, test.result, made.EventQuery(1), "%v", test)
		require.Equal(t, test.calls, s.takeCalls(), "%v", test)

		// By calls of their own it comes to the same.
		plain := *api
		plain.Fused = nil
		made = scopeTables[test.table].of(&plain)
		require.Equal(t, test.result, made.EventQuery(1), "%v", test)
		require.Equal(t, test.calls, s.takeCalls(), "%v", test)
		for symbol := range test.answers {
			s.answer(symbol, 0)
		}
	}
}

func TestMissingFunctionsInScopes(t *testing.T) {
	s, api := openScopes(t, "cuStreamGetId", "cuEventElapsedTime_v2")
	api.Retained = new(driver.Retained)
	for name, test := range scopeTables {
		made := test.of(api)
		require.ElementsMatch(t, []string{"cuStreamGetId", "cuEventElapsedTime_v2"}, made.Missing, name)
		require.Same(t, api.Retained, made.Retained, name)
		require.NoError(t, made.Complete())
		require.Len(t, made.Missing, 2, name)
		_, r := made.StreamGetID(1)
		require.Equal(t, driver.ErrorCallRequiresNewerDriver, r, name)
		s.takeCalls()
		_, r = made.EventElapsedTime(1, 2)
		require.Equal(t, driver.Success, r)
		require.Equal(t, around(name, "cuEventElapsedTime"), s.takeCalls(), name)
	}
}

func BenchmarkScopes(b *testing.B) {
	_, api := openScopes(b)
	for _, name := range []string{"neither", "bound", "quiet", "bound, then quiet", "three"} {
		b.Run(name, func(b *testing.B) {
			made := scopeTables[name].of(api)
			for range b.N {
				made.EventQuery(1)
			}
		})
	}
}
