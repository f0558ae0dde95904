package driver_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/driver"
)

// fused returns a table of functions that cannot be called, with Fused.
func fused(t *testing.T) *driver.API {
	api := new(driver.API)
	var missing *driver.MissingError
	require.ErrorAs(t, api.Complete(), &missing)
	functions := reflect.ValueOf(api).Elem()
	for i := range functions.NumField() {
		if f := functions.Field(i); f.Kind() == reflect.Func {
			f.Set(reflect.MakeFunc(f.Type(), nil))
		}
	}
	answer := driver.Result(len(missing.Symbols)) // makes each a closure
	api.EventRecord = func(driver.Event, driver.Stream) driver.Result { return answer }
	api.Fused = &driver.Fused{Of: api}
	return api
}

func TestCopiesKeepWhatIsFused(t *testing.T) {
	wrapped := *fused(t)
	_ = wrapped.Complete()
	require.NotNil(t, wrapped.Fused)
}

func TestFusedGoesWithAnyFunction(t *testing.T) {
	api := fused(t)
	for name, replace := range map[string]func(*driver.API){
		"by another":       func(a *driver.API) { a.EventQuery = func(driver.Event) driver.Result { return 0 } },
		"of the same code": func(a *driver.API) { a.EventRecord = fused(t).EventRecord },
		"an optional one":  func(a *driver.API) { a.StreamGetID = func(driver.Stream) (uint64, driver.Result) { return 0, 0 } },
	} {
		t.Run(name, func(t *testing.T) {
			wrapped := *api
			replace(&wrapped)
			_ = wrapped.Complete()
			require.Nil(t, wrapped.Fused)
			require.NotNil(t, api.Fused)
		})
	}
}
