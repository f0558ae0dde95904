package testgpu

import (
	"maps"
	"reflect"
	"sync"
	"testing"

	"github.com/purecuda/cuda/driver"
)

// Counter counts the calls of a driver's functions.
type Counter struct {
	mu    sync.Mutex
	calls map[string]int
}

// Counted opens a driver like that of b whose calls are counted. change, unless nil,
// replaces functions of the table before.
func Counted(t testing.TB, b *Backend, change func(*driver.API)) (*Backend, *Counter) {
	t.Helper()
	c := &Counter{calls: map[string]int{}}
	return Modified(t, b, func(api *driver.API) {
		if change != nil {
			change(api)
		}
		Wrap(api, func(function reflect.StructField, _ []reflect.Value, call func() []reflect.Value) []reflect.Value {
			c.mu.Lock()
			c.calls[function.Name]++
			c.mu.Unlock()
			return call()
		})
	}), c
}

// During returns the calls that f makes, by name.
func (c *Counter) During(f func()) map[string]int {
	c.mu.Lock()
	before := maps.Clone(c.calls)
	c.mu.Unlock()
	f()
	c.mu.Lock()
	defer c.mu.Unlock()
	made := map[string]int{}
	for name, n := range c.calls {
		if n > before[name] {
			made[name] = n - before[name]
		}
	}
	return made
}

// Count returns how often a function was called.
func (c *Counter) Count(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[name]
}

// WaitCount waits until a function has been called n times: what was in use is freed in the
// background.
func (c *Counter) WaitCount(t testing.TB, name string, n int) {
	t.Helper()
	WaitUntil(t, func() bool { return c.Count(name) == n })
}
