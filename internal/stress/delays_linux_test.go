//go:build linux && (amd64 || arm64) && !nocuda

package stress_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	dl "github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/ccall"
	"github.com/purecuda/cuda/internal/ccall/testlib"
	"github.com/purecuda/cuda/internal/testgpu"
)

// synchronizeInC is a C function that calls cuEventSynchronize, on this thread and
// in this process.
func synchronizeInC(t *testing.T, drv *cuda.Driver) func(driver.Event) {
	own, err := dl.Dlopen(testlib.Compile(t, `int call(int (*f)(void *), void *event) { return f(event); }`), dl.RTLD_NOW)
	require.NoError(t, err)
	call, err := dl.Dlsym(own, "call")
	require.NoError(t, err)
	library, err := dl.Dlopen(drv.Library(), dl.RTLD_NOW)
	require.NoError(t, err)
	f, err := dl.Dlsym(library, "cuEventSynchronize")
	require.NoError(t, err)
	return func(e driver.Event) {
		frame := ccall.Frame{Fn: call, Arg: [ccall.MaxArgs]uintptr{f, uintptr(e)}}
		if r := frame.Call(nil); r != 0 {
			t.Error(driver.Result(r))
		}
	}
}

func usedCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestWaitDelays waits for work of known lengths, in turns by cuEventSynchronize
// called from C and by each wait of this package, and prints a table of how long
// it took from the launch of the work until the host went on.
func TestWaitDelays(t *testing.T) {
	skipShort(t)
	drv := testgpu.RealDriver(t)
	inC := synchronizeInC(t, drv)
	dev, err := drv.OpenDevice(0)
	require.NoError(t, err)
	s := testgpu.NewStream(t, dev, nil)
	spin := testgpu.Kernel(t, testgpu.Kernels(t, dev), "purecuda_spin")
	one := cuda.LaunchConfig{Grid: cuda.Dim3{X: 1}, Block: cuda.Dim3{X: 1}}
	spinning, blocking := testgpu.NewEvent(t, nil), testgpu.NewEvent(t, &cuda.EventOptions{Blocking: true})
	cSpinning, cBlocking := testgpu.NewEvent(t, nil), testgpu.NewEvent(t, &cuda.EventOptions{Blocking: true})
	wait := func(err error) { require.NoError(t, err) }
	ways := []struct {
		name  string
		event *cuda.Event
		wait  func()
	}{
		{"cuEventSynchronize in C, spinning", cSpinning, func() { inC(cSpinning.Handle()) }},
		{"cuEventSynchronize in C, blocking", cBlocking, func() { inC(cBlocking.Handle()) }},
		{"Event.Synchronize", spinning, func() { wait(spinning.Synchronize()) }},
		{"<-Event.Done()", spinning, func() { wait(<-spinning.Done()) }},
		{"Event.Synchronize, Blocking", blocking, func() { wait(blocking.Synchronize()) }},
		{"Stream.Synchronize", nil, func() { wait(s.Synchronize()) }},
		{"Device.Synchronize", nil, func() { wait(dev.Synchronize()) }},
		// What docs/waiting.md rejects.
		{"a loop of Query and time.Sleep(20 µs)", spinning, func() {
			for !testgpu.Query(t, spinning) {
				time.Sleep(20 * time.Microsecond)
			}
		}},
		{"LaunchHostFunc and a channel", nil, func() {
			called := make(chan error)
			wait(s.LaunchHostFunc(func(err error) { called <- err }))
			wait(<-called)
		}},
	}
	var table strings.Builder
	fmt.Fprintf(&table, "| wait | work | later than spinning, median | p10 | p90 | of a core |\n|---|---|---|---|---|---|\n")
	for _, work := range []struct {
		d      time.Duration
		rounds int
		later  time.Duration // the median must be, on a machine that may be noisy
	}{
		{20 * time.Microsecond, 300, 20 * time.Microsecond},
		{200 * time.Microsecond, 300, 20 * time.Microsecond},
		{time.Millisecond, 200, 200 * time.Microsecond},
		{10 * time.Millisecond, 20, 300 * time.Microsecond},
		{100 * time.Millisecond, 5, 300 * time.Microsecond},
	} {
		samples := make([]sample, len(ways))
		for range work.rounds {
			for i, w := range ways {
				used, began := usedCPU(), time.Now()
				wait(spin.Launch(s, one, uint64(work.d)))
				if w.event != nil {
					wait(w.event.Record(s))
				}
				w.wait()
				samples[i].took = append(samples[i].took, time.Since(began))
				samples[i].cpu += usedCPU() - used
			}
		}
		reference := samples[0].at(0.5)
		for i, w := range ways {
			later := func(quantile float64) float64 {
				return float64((samples[i].at(quantile) - reference).Nanoseconds()) / 1e3
			}
			fmt.Fprintf(&table, "| %s | %v | %+.1f µs | %+.1f | %+.1f | %.1f %% |\n", w.name, work.d, later(0.5), later(0.1), later(0.9), samples[i].load())
		}
		require.Less(t, samples[2].at(0.5)-reference, work.later)
	}
	t.Logf("from launch to waking, compared to the median of cuEventSynchronize spinning in C\n%s", &table)
}
