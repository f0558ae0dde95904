package races

import (
	"sync"
	"unsafe"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/callsite"
	"github.com/purecuda/cuda/internal/order"
)

// kernels are the names of kernels, and what launches use that are about to be made.
type kernels struct {
	mu    sync.Mutex
	names map[driver.Func]string
	told  map[unsafe.Pointer]*launchUses // by their parameters
}

// launchUses is the memory that launches with the same parameters use.
type launchUses struct {
	uses  []driver.Use
	users int
}

// uses is [driver.Races].Uses.
func (k *kernels) uses(params unsafe.Pointer, memory []driver.Use) (done func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.told[params]
	if l == nil {
		l = &launchUses{uses: memory}
		k.told[params] = l
	}
	l.users++
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(k.told, params)
		}
	}
}

// of returns the name of a kernel, and what a launch uses.
func (k *kernels) of(f driver.Func, params unsafe.Pointer) (name string, memory []driver.Use) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l := k.told[params]; l != nil {
		memory = l.uses
	}
	return "kernel " + k.names[f], memory
}

func (d *detector) wrapKernels(api *driver.API) {
	k := &kernels{names: map[driver.Func]string{}, told: map[unsafe.Pointer]*launchUses{}}
	d.races.Uses = k.uses
	api.ModuleGetFunction = func(m driver.Module, name string) (driver.Func, driver.Result) {
		f, r := d.api.ModuleGetFunction(m, name)
		if r == driver.Success {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.names[f] = name
		}
		return f, r
	}
	launched := func(f driver.Func, h driver.Stream, params unsafe.Pointer, at callsite.Site, call func() driver.Result) driver.Result {
		name, memory := k.of(f, params)
		var uses []use
		for _, m := range memory {
			kinds := [...]order.Kind{driver.UseWrites: order.Write, driver.UseReads: order.Read, driver.UseAtomics: order.Atomic}
			uses = append(uses, d.use(uint64(m.At), m.Bytes, kinds[m.Kind])...)
		}
		s := d.stream(h)
		return d.put(s, &operation{task: &Task{What: name, Stream: s, At: at}, uses: uses}, call)
	}
	api.LaunchKernel = func(f driver.Func, gx, gy, gz, bx, by, bz, shared uint32, s driver.Stream, params, extra unsafe.Pointer) driver.Result {
		return launched(f, s, params, callsite.Caller(), func() driver.Result {
			return d.api.LaunchKernel(f, gx, gy, gz, bx, by, bz, shared, s, params, extra)
		})
	}
	api.LaunchCooperativeKernel = func(f driver.Func, gx, gy, gz, bx, by, bz, shared uint32, s driver.Stream, params unsafe.Pointer) driver.Result {
		return launched(f, s, params, callsite.Caller(), func() driver.Result {
			return d.api.LaunchCooperativeKernel(f, gx, gy, gz, bx, by, bz, shared, s, params)
		})
	}
}
