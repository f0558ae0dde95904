package ipc_test

import (
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
)

// counter counts the calls of a driver's functions.
type counter struct {
	mu    sync.Mutex
	calls map[string]int
}

// counted is b with a driver of its own whose calls are counted. change, unless
// nil, replaces functions of the table before.
func counted(t testing.TB, b *backend, change func(*driver.API)) (*backend, *counter) {
	t.Helper()
	api, c := *b.drv.API(), &counter{calls: map[string]int{}}
	if change != nil {
		change(&api)
	}
	table := reflect.ValueOf(&api).Elem()
	for i := range table.NumField() {
		f := table.Field(i)
		if f.Kind() != reflect.Func || f.IsNil() {
			continue
		}
		name, bare := table.Type().Field(i).Name, reflect.ValueOf(f.Interface())
		f.Set(reflect.MakeFunc(f.Type(), func(args []reflect.Value) []reflect.Value {
			c.mu.Lock()
			c.calls[name]++
			c.mu.Unlock()
			return bare.Call(args)
		}))
	}
	drv, err := cuda.OpenDriver(&api)
	require.NoError(t, err)
	own := &backend{drv: drv}
	for i := range b.devices {
		d, err := drv.OpenDevice(i)
		require.NoError(t, err)
		own.devices = append(own.devices, d)
	}
	t.Cleanup(func() {
		for deadline := time.Now().Add(5 * time.Second); drv.Stats() != (cuda.Stats{}) && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond) // memory is freed a moment later
		}
		require.Equal(t, cuda.Stats{}, drv.Stats(), "left open")
	})
	return own, c
}

func (c *counter) count(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[name]
}
