package bench

import (
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
)

// open opens a simulated GPU, and checks at the end that nothing of it is left open.
func open(t *testing.T, wrap func(*driver.API)) *cuda.Device {
	gpu := cudatest.New(cudatest.Config{})
	api := *gpu.API()
	wrap(&api)
	drv, err := cuda.OpenDriver(&api)
	require.NoError(t, err)
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	t.Cleanup(func() {
		for deadline := time.Now().Add(5 * time.Second); drv.Stats() != (cuda.Stats{}) && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond) // what a wait no longer needs is closed by a goroutine
		}
		require.Equal(t, cuda.Stats{}, drv.Stats(), "left open")
		gpu.Check(t)
	})
	return d
}

func fixture(t *testing.T, wrap func(*driver.API)) *Fixture {
	f, err := NewFixture(open(t, wrap))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

func asIs(*driver.API) {}

func TestRows(t *testing.T) {
	f := fixture(t, asIs)
	for _, r := range Rows() {
		t.Run(r.ID, func(t *testing.T) {
			require.Same(t, r, RowByID(r.ID))
			for _, w := range []*Way{r.ByMethod(f), r.ByTable(f)} {
				if w == nil {
					require.Nil(t, r.Table)
					require.Nil(t, r.Calls)
					continue
				}
				require.NoError(t, Sample(t.Context(), []*Fixture{f}, []*Way{w}, 2))
				require.Equal(t, r.Batch, w.N)
				require.Len(t, w.NS, 2)
				require.NoError(t, w.Missing)
			}
			done, err := f.E.Query()
			require.NoError(t, err)
			require.True(t, done)
		})
	}
	require.Nil(t, RowByID("none"))
}

func TestRowsByGoroutines(t *testing.T) {
	d := open(t, asIs)
	var fixtures []*Fixture
	for range 4 {
		f, err := NewFixture(d)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, f.Close()) })
		fixtures = append(fixtures, f)
	}
	for _, r := range Rows() {
		w := r.ByGoroutines(fixtures)
		require.NoError(t, Sample(t.Context(), fixtures, []*Way{w}, 1), r.ID)
		require.Len(t, w.NS, 1)
	}
}

// A device without pools has no row for them, and all others.
func TestRowsWithoutMemoryPools(t *testing.T) {
	drv, err := cuda.OpenDriver(cudatest.New(cudatest.Config{NoMemoryPools: true}).API())
	require.NoError(t, err)
	d, err := drv.OpenDevice(0)
	require.NoError(t, err)
	f, err := NewFixture(d)
	require.NoError(t, err)
	w := allocFree.ByTable(f)
	require.NoError(t, Sample(t.Context(), []*Fixture{f}, []*Way{w}, 1))
	require.ErrorIs(t, w.Missing, driver.ErrorNotSupported)
	require.NoError(t, f.Close())
}

// made is a call that the driver got: its symbol and the arguments that are numbers
// or addresses.
type made struct {
	symbol string
	args   []uint64
}

// logging makes the functions of the table say in the log that they are called. When the
// objects of a test are garbage, some are called on other goroutines.
func logging(log *[]made) func(*driver.API) {
	return func(api *driver.API) {
		var mu sync.Mutex
		v := reflect.ValueOf(api).Elem()
		for i := range v.NumField() {
			symbol, f := v.Type().Field(i).Tag.Get("cu"), v.Field(i)
			if symbol == "" || f.IsNil() {
				continue
			}
			function := reflect.ValueOf(f.Interface())
			f.Set(reflect.MakeFunc(f.Type(), func(args []reflect.Value) []reflect.Value {
				call := made{symbol, []uint64{}}
				for _, a := range args {
					switch {
					case a.CanInt():
						call.args = append(call.args, uint64(a.Int()))
					case a.CanUint():
						call.args = append(call.args, a.Uint())
					case a.Kind() == reflect.UnsafePointer:
						call.args = append(call.args, uint64(a.Pointer()))
					}
				}
				mu.Lock()
				*log = append(*log, call)
				mu.Unlock()
				return function.Call(args)
			}))
		}
	}
}

// What a row is described by is what its table function does. A result that C writes
// through a pointer is no argument of the table's function, and what a later call
// loads from there is that result.
func TestCallsAreWhatTheTableDoes(t *testing.T) {
	var log []made
	f := fixture(t, logging(&log))
	for _, r := range Rows() {
		if r.Calls == nil {
			continue
		}
		t.Run(r.ID, func(t *testing.T) {
			log = nil
			_, err := r.ByTable(f).Do(1)
			require.NoError(t, err)
			// Around it the context is made current.
			require.Equal(t, "cuCtxPushCurrent_v2", log[0].symbol)
			require.Equal(t, "cuCtxPopCurrent_v2", log[len(log)-1].symbol)
			table := log[1 : len(log)-1]
			calls := r.Calls(f)
			require.Len(t, calls, len(table))
			for i, c := range calls {
				require.Equal(t, table[i].symbol, c.Symbol)
				require.LessOrEqual(t, len(c.Args), 11, "as many as an engine takes")
				args := slices.Clone(c.Args)
				if c.Load == 0 {
					args = slices.DeleteFunc(args, func(a uint64) bool { return a == f.out() })
				} else {
					require.Equal(t, uint32(first), c.Load)
					require.Equal(t, f.out(), args[0])
					args[0] = table[i].args[0]
				}
				require.Equal(t, table[i].args, args, "%s", c.Symbol)
			}
			require.NoError(t, f.Drain(t.Context()))
		})
	}
}

// Each symbol is one that the driver is asked for.
func TestSymbols(t *testing.T) {
	f := fixture(t, asIs)
	for _, r := range Rows() {
		if r.Calls == nil {
			continue
		}
		for _, c := range r.Calls(f) {
			require.True(t, slices.ContainsFunc(driver.Functions, func(fn driver.Function) bool { return fn.Symbol == c.Symbol }), c.Symbol)
		}
	}
}

func TestTitles(t *testing.T) {
	ids, titles := map[string]bool{}, map[string]bool{}
	for _, r := range Rows() {
		require.False(t, ids[r.ID] || titles[r.Title], r.ID)
		ids[r.ID], titles[r.Title] = true, true
		require.Zero(t, strings.Count(r.Title, "`")%2, r.Title)
	}
}

// A fixture that cannot be made leaves nothing open.
func TestFixtureFails(t *testing.T) {
	d := open(t, func(api *driver.API) {
		api.GraphInstantiateWithFlags = func(driver.Graph, uint64) (driver.GraphExec, driver.Result) {
			return 0, driver.ErrorOutOfMemory
		}
	})
	f, err := NewFixture(d)
	require.Nil(t, f)
	require.ErrorIs(t, err, driver.ErrorOutOfMemory)
}

// What several threads do in a sample is long enough even without a lock to wait for.
func TestParallelBatch(t *testing.T) {
	require.Equal(t, 4*record.Batch, record.ParallelBatch())
	for _, r := range []*Row{&transition, &elapsed, &currentStream} {
		require.Equal(t, 40*r.Batch, r.ParallelBatch())
		require.Equal(t, r.ParallelBatch(), r.ByGoroutines(nil).N)
	}
}
