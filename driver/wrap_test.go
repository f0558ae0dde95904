package driver_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

// thread is the state of a thread that a table changes, and what was called on it.
type thread struct {
	contexts []driver.Context
	mode     driver.CaptureMode
	log      []string
	answers  map[string][]driver.Result // what a function's next calls answer, then success
}

func (w *thread) called(name string, args ...any) driver.Result {
	w.log = append(w.log, name+fmt.Sprint(args...))
	if next := w.answers[name]; len(next) > 0 {
		w.answers[name] = next[1:]
		return next[0]
	}
	return driver.Success
}

// takeLog returns what was called since the last time.
func (w *thread) takeLog() []string {
	log := w.log
	w.log = nil
	return log
}

func (w *thread) current() driver.Context {
	if len(w.contexts) == 0 {
		return 0
	}
	return w.contexts[len(w.contexts)-1]
}

// unscoped are the functions that are called the same in any table.
var unscoped = map[string]bool{
	"Init": true, "DriverGetVersion": true, "CtxPushCurrent": true, "CtxPopCurrent": true, "CtxGetCurrent": true,
	"ThreadExchangeStreamCaptureMode": true,
}

// table returns a complete table without Fused. Every function notes its name, and, if
// the thread has them, the current context and the mode.
func (w *thread) table(t *testing.T) *driver.API {
	api := &driver.API{Source: "a fake", Retained: new(driver.Retained), Processes: new(driver.Processes)}
	api.Sleep = func([]driver.Event, time.Duration, <-chan struct{}) { w.called("Sleep") }
	for _, f := range driver.Functions {
		field := reflect.ValueOf(api).Elem().FieldByName(f.Field)
		field.Set(reflect.MakeFunc(field.Type(), func(args []reflect.Value) (results []reflect.Value) {
			for i := range field.Type().NumOut() - 1 {
				results = append(results, value(field.Type().Out(i), len(args)+i))
			}
			for i, a := range args {
				require.Equal(t, value(a.Type(), i).Interface(), a.Interface(), "argument %d of %s", i, f.Field)
			}
			return append(results, reflect.ValueOf(w.called(f.Field, w.current(), " ", w.mode)))
		}))
	}
	api.CtxPushCurrent = func(c driver.Context) driver.Result {
		r := w.called("push", c)
		if r == driver.Success {
			w.contexts = append(w.contexts, c)
		}
		return r
	}
	api.CtxPopCurrent = func() (driver.Context, driver.Result) {
		c := w.current()
		w.contexts = w.contexts[:len(w.contexts)-1]
		return c, w.called("pop")
	}
	api.CtxGetCurrent = func() (driver.Context, driver.Result) { return w.current(), w.called("get") }
	api.ThreadExchangeStreamCaptureMode = func(mode driver.CaptureMode) (driver.CaptureMode, driver.Result) {
		r, was := w.called("mode", mode), w.mode
		if r != driver.Success {
			return 0, r
		}
		w.mode = mode
		return was, r
	}
	require.NoError(t, api.Complete())
	return api
}

// closure returns the address of a func's closure: its code is that of others too.
func closure(f reflect.Value) unsafe.Pointer { return *(*unsafe.Pointer)(f.Addr().UnsafePointer()) }

// value makes a value that tells its position among the parameters and the results.
func value(typ reflect.Type, i int) reflect.Value {
	v := reflect.New(typ).Elem()
	switch {
	case v.CanInt():
		v.SetInt(int64(i) + 1)
	case v.CanUint():
		v.SetUint(uint64(i) + 1)
	case v.CanFloat():
		v.SetFloat(float64(i) + 1)
	case v.Kind() == reflect.String:
		v.SetString(fmt.Sprint("text ", i))
	case v.Kind() == reflect.Array:
		v.Index(0).SetUint(uint64(i) + 1)
	}
	return v
}

// tables are the ways to make tables, with what they note before and after a function that
// finds the state between, if the thread's mode is 0 before.
var tables = map[string]struct {
	of                   func(a *driver.API) *driver.API
	before, state, after string
}{
	"bound": {func(a *driver.API) *driver.API { return a.Bound(5) }, "push5", "5 0", "pop"},
	"quiet": {func(a *driver.API) *driver.API { return a.Quiet() }, "mode2", "0 2", "mode0"},
	"bound, then quiet": {func(a *driver.API) *driver.API { return a.Bound(5).Quiet() },
		"mode2 push5", "5 2", "pop mode0"},
	"quiet, then bound": {func(a *driver.API) *driver.API { return a.Quiet().Bound(5) },
		"push5 mode2", "5 2", "mode0 pop"},
	"three": {func(a *driver.API) *driver.API { return a.Bound(5).Quiet().Bound(6) },
		"push6 mode2 push5", "5 2", "pop mode0 pop"},
}

func words(s ...string) []string { return strings.Fields(strings.Join(s, " ")) }

// Every function finds the state that it is promised, with its arguments, and its results
// come back; the thread's state is as it was afterwards.
func TestEveryFunctionIsWrapped(t *testing.T) {
	for name, test := range tables {
		t.Run(name, func(t *testing.T) {
			w := new(thread)
			api := w.table(t)
			made := reflect.ValueOf(test.of(api)).Elem()
			require.Empty(t, w.takeLog(), "nothing is called by making a table")
			for _, f := range driver.Functions {
				fn := made.FieldByName(f.Field)
				if unscoped[f.Field] {
					require.Equal(t, closure(reflect.ValueOf(api).Elem().FieldByName(f.Field)), closure(fn))
					continue
				}
				var args []reflect.Value
				for i := range fn.Type().NumIn() {
					args = append(args, value(fn.Type().In(i), i))
				}
				results := fn.Call(args)
				want := append(words(test.before), f.Field+test.state)
				require.Equal(t, append(want, words(test.after)...), w.takeLog())
				for i, r := range results[:len(results)-1] {
					require.Equal(t, value(r.Type(), len(args)+i).Interface(), r.Interface(), f.Field)
				}
				require.Equal(t, driver.Success, results[len(results)-1].Interface())
				require.Empty(t, w.contexts)
				require.Zero(t, w.mode)
			}
		})
	}
}

// The functions are those that the table has when it is made, whatever it came with, and
// what is no function of the driver stays.
func TestWrappedTableIsOfTheTable(t *testing.T) {
	for name, test := range tables {
		t.Run(name, func(t *testing.T) {
			w := new(thread)
			api := w.table(t)
			api.Missing = []string{"cuNew"}
			of := *api
			api.Fused = &driver.Fused{Of: &of}
			query := api.EventQuery
			api.EventQuery = func(e driver.Event) driver.Result {
				w.called("mine")
				return query(e)
			}
			made := test.of(api)
			require.Nil(t, made.Fused)
			require.NotNil(t, api.Fused, "the table itself was changed")
			api.EventQuery, api.CtxPushCurrent, api.ThreadExchangeStreamCaptureMode = nil, nil, nil

			require.Equal(t, driver.Success, made.EventQuery(1))
			require.Equal(t, words(test.before, "mine"), w.log[:len(words(test.before))+1])
			requireSameRest(t, api, made)
			require.NoError(t, made.Complete())
		})
	}
}

// requireSameRest checks that b has what a has besides functions of the driver, and Fused.
func requireSameRest(t *testing.T, a, b *driver.API) {
	x, y := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := range x.NumField() {
		switch field := x.Type().Field(i); {
		case field.Name == "Fused" || field.Tag.Get("cu") != "":
		case field.Type.Kind() == reflect.Func:
			require.Equal(t, x.Field(i).Pointer(), y.Field(i).Pointer(), field.Name)
		default:
			require.Equal(t, x.Field(i).Interface(), y.Field(i).Interface(), field.Name)
		}
	}
}

// What is nil stays so, for Complete to find.
func TestWrappersOfNothing(t *testing.T) {
	api := new(driver.API)
	var missing, after *driver.MissingError
	made := api.Bound(5).Quiet()
	require.Nil(t, made.EventQuery)
	require.ErrorAs(t, made.Complete(), &after)
	require.ErrorAs(t, api.Complete(), &missing)
	require.Equal(t, missing, after)
}

func TestResultsOfWrappers(t *testing.T) {
	type answers map[string][]driver.Result
	const a, b, c = driver.ErrorNotReady, driver.ErrorInvalidHandle, driver.ErrorUnknown
	for _, test := range []struct {
		table   string
		answers answers
		result  driver.Result
		log     string
		mode    driver.CaptureMode // what remains
	}{
		{"bound", answers{"EventQuery": {a}}, a, "push5 EventQuery pop", 0},
		{"bound", answers{"push": {a}, "EventQuery": {b}}, a, "push5", 0},
		{"bound", answers{"pop": {b}}, b, "push5 EventQuery pop", 0},
		{"bound", answers{"EventQuery": {a}, "pop": {b}}, a, "push5 EventQuery pop", 0},
		{"quiet", answers{"EventQuery": {a}}, a, "mode2 EventQuery mode0", 0},
		{"quiet", answers{"mode": {b}}, 0, "mode2 EventQuery", 0},
		{"quiet", answers{"mode": {b}, "EventQuery": {a}}, a, "mode2 EventQuery", 0},
		{"quiet", answers{"mode": {0, b}}, 0, "mode2 EventQuery mode0", 2},
		{"quiet", answers{"mode": {0, b}, "EventQuery": {a}}, a, "mode2 EventQuery mode0", 2},
		{"bound, then quiet", answers{"push": {a}, "mode": {0, b}}, a, "mode2 push5 mode0", 2},
		{"bound, then quiet", answers{"mode": {b}, "pop": {a}}, a, "mode2 push5 EventQuery pop", 0},
		{"quiet, then bound", answers{"push": {a}}, a, "push5", 0},
		{"quiet, then bound", answers{"mode": {b}, "pop": {c}}, c, "push5 mode2 EventQuery pop", 0},
	} {
		t.Run(fmt.Sprint(test.table, test.answers), func(t *testing.T) {
			w := &thread{answers: test.answers}
			api := w.table(t)
			api.EventQuery = func(driver.Event) driver.Result { return w.called("EventQuery") }
			require.Equal(t, test.result, tables[test.table].of(api).EventQuery(1))
			require.Equal(t, words(test.log), w.log)
			require.Empty(t, w.contexts)
			require.Equal(t, test.mode, w.mode)
		})
	}
}

// A mode that was another before comes back.
func TestQuietRestoresTheMode(t *testing.T) {
	w := &thread{mode: driver.CaptureModeThreadLocal}
	api := w.table(t).Quiet()
	require.Equal(t, driver.Success, api.StreamQuery(1))
	require.Equal(t, []string{"mode2", "StreamQuery0 2", "mode1"}, w.log)
}

func TestFusedTablesAreUsed(t *testing.T) {
	w := new(thread)
	api := w.table(t)
	of, bound, relaxed := *api, *w.table(t), *w.table(t)
	fusedOfBound := &driver.Fused{Of: &bound}
	bound.Fused = fusedOfBound
	bound.Source, bound.Retained, bound.Sleep, bound.Processes = "", nil, nil, nil
	var context driver.Context
	api.Fused = &driver.Fused{
		Of:      &of,
		Within:  func(c driver.Context) *driver.API { context = c; return &bound },
		Relaxed: func() *driver.API { return &relaxed },
	}
	api.Missing, api.Retained = []string{"cuNew"}, new(driver.Retained)

	made := api.Bound(9)
	require.Equal(t, driver.Context(9), context)
	require.Same(t, fusedOfBound, made.Fused)
	requireSameRest(t, api, made)
	require.Empty(t, bound.Source, "the table that was returned was changed")
	made.EventQuery(value(reflect.TypeFor[driver.Event](), 0).Interface().(driver.Event))
	require.Equal(t, []string{"EventQuery0 0"}, w.takeLog(), "it is the function of the other table")

	made = api.Quiet()
	require.Nil(t, made.Fused)
	requireSameRest(t, api, made)

	api.StreamGetID = func(driver.Stream) (uint64, driver.Result) { return 0, w.called("mine") }
	api.Bound(9).StreamGetID(1)
	require.Equal(t, []string{"push9", "mine", "pop"}, w.takeLog(), "a function was replaced")
}

func TestWrappersDoNotAllocate(t *testing.T) {
	api := new(thread).table(t)
	api.EventQuery = func(driver.Event) driver.Result { return driver.Success }
	api.CtxPushCurrent = func(driver.Context) driver.Result { return driver.Success }
	api.CtxPopCurrent = func() (driver.Context, driver.Result) { return 0, driver.Success }
	api.ThreadExchangeStreamCaptureMode = func(m driver.CaptureMode) (driver.CaptureMode, driver.Result) { return m, 0 }
	made := api.Bound(5).Quiet()
	require.Zero(t, testing.AllocsPerRun(1000, func() { made.EventQuery(1) }))
}
