package testgpu

import (
	"reflect"

	"github.com/purecuda/cuda/driver"
)

// Wrap replaces each function of api by one that calls around, which makes the call and
// returns its results.
func Wrap(api *driver.API, around func(function reflect.StructField, args []reflect.Value, call func() []reflect.Value) []reflect.Value) {
	table := reflect.ValueOf(api).Elem()
	for i := range table.NumField() {
		f, function := table.Field(i), table.Type().Field(i)
		if f.Kind() != reflect.Func || f.IsNil() {
			continue
		}
		bare := reflect.ValueOf(f.Interface())
		f.Set(reflect.MakeFunc(f.Type(), func(args []reflect.Value) []reflect.Value {
			return around(function, args, func() []reflect.Value { return bare.Call(args) })
		}))
	}
}

// OfThread reports whether a function of the table only concerns the calling thread or sleeps.
func OfThread(function reflect.StructField) bool {
	return function.Name == "Sleep" || function.Tag.Get("scope") == "none"
}
