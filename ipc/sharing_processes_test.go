package ipc_test

import (
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/internal/testgpu"
)

// directions are who exports and who imports.
func directions(here, there hand) map[string][2]hand {
	return map[string][2]hand{"from the parent": {here, there}, "from the child": {there, here}}
}

// onTwo runs f with workers of two processes, simulated and real ones. A long kernel
// takes as long as f is given.
func onTwo(t *testing.T, f func(t *testing.T, here, there hand, long time.Duration)) {
	t.Run("simulated", func(t *testing.T) {
		p := newPeers(t, cudatest.Config{})
		f(t, localWorker(t, p.Here.Device()), localWorker(t, p.There.Device()), 50*time.Millisecond)
	})
	t.Run("real", func(t *testing.T) {
		here, there := twoWorkers(t)
		f(t, here, there, 150*time.Millisecond)
		there.End()
	})
}

// One waits for the other's event, on the device and on the host. What it then sees
// was written behind a long kernel.
func TestProcessesWaitForEachOther(t *testing.T) { onTwo(t, waitForEachOther) }

func waitForEachOther(t *testing.T, here, there hand, long time.Duration) {
	for name, pair := range directions(here, there) {
		t.Run(name, func(t *testing.T) {
			from, to := pair[0], pair[1]
			share(t, from, to, "text")
			require.Equal(t, "true true", tells(t, to, "query"), "never recorded")
			tells(t, from, "fill", "1")
			tells(t, from, "sync")
			for v := 2; v < 7; v++ {
				began := time.Now()
				tells(t, from, "spin", fmt.Sprint(long.Milliseconds()))
				tells(t, from, "fill", strconv.Itoa(v))
				tells(t, from, "record")
				tells(t, to, "wait")
				tells(t, to, "copy")
				state := tells(t, to, "query")
				if asked := time.Since(began); asked < long {
					require.Equal(t, "false false", state, "asked after %v", asked)
				} else {
					t.Logf("too slow to ask while the kernel ran: %v", asked)
				}
				tells(t, to, "sync")
				require.Greater(t, time.Since(began), long*9/10)
				tells(t, to, "check", strconv.Itoa(v))
				require.Equal(t, "true true", tells(t, to, "query"))
			}

			// The same by a word in memory, which is certain to hold, and a wait on the host.
			tells(t, from, "hold")
			tells(t, from, "spin", "20")
			tells(t, from, "fill", "9")
			tells(t, from, "record")
			require.Equal(t, "false true", tells(t, to, "query"))
			tells(t, to, "wait")
			tells(t, to, "copy")
			require.Equal(t, "false false", tells(t, to, "query"))
			tells(t, from, "release")
			tells(t, to, "await")
			tells(t, to, "sync")
			tells(t, to, "check", "9")
			tells(t, to, "drop")
			tells(t, from, "sync")
			tells(t, from, "drop")
		})
	}
}

// Memory goes there and back, described in each form of a token. The answer is
// marked by the importer, which records the exporter's event.
func TestMemoryThereAndBack(t *testing.T) { onTwo(t, thereAndBack) }

func thereAndBack(t *testing.T, here, there hand, _ time.Duration) {
	for name, pair := range directions(here, there) {
		for form := range tokenForms {
			t.Run(name+" as "+form, func(t *testing.T) {
				from, to := pair[0], pair[1]
				share(t, from, to, form)
				for v := 10; v < 40; v += 2 {
					tells(t, from, "hold")
					tells(t, from, "fill", strconv.Itoa(v))
					tells(t, from, "record")
					tells(t, to, "wait")
					tells(t, to, "copy")
					tells(t, to, "spin", "2")
					tells(t, to, "fill", strconv.Itoa(v+1))
					tells(t, from, "release")
					tells(t, to, "record")
					tells(t, from, "wait")
					tells(t, from, "copy")
					tells(t, from, "sync")
					tells(t, from, "check", strconv.Itoa(v+1))
					tells(t, to, "sync")
					tells(t, to, "check", strconv.Itoa(v))
				}
				tells(t, to, "drop")
				tells(t, from, "drop")
			})
		}
	}
}

// The driver passes events and memory between PID namespaces, but nobody would see
// the other die.
func TestTokensOfAnotherPIDNamespace(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only linux has PID namespaces")
	}
	d, err := testgpu.RealDriver(t).OpenDevice(0)
	require.NoError(t, err)
	unshare := []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"}
	if out, err := exec.Command(unshare[0], append(unshare[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("%v is not possible here: %v %s", unshare, err, out)
	}
	there := launchWorker(t, unshare...)
	if said := there.Says(); said != "ok ready" {
		t.Skip("CUDA does not start in a PID namespace of its own: ", said)
	}
	here := localWorker(t, d)
	for name, pair := range directions(here, there) {
		tells(t, pair[0], "make")
		for _, what := range []string{"event", "memory"} {
			_, err := pair[1].do("import", what, "text", tells(t, pair[0], "export", what, "text"))
			require.ErrorContains(t, err, cuda.ErrUnreachable.Error(), name)
			require.ErrorContains(t, err, "PID namespace", name)
			if pair[1] == hand(here) {
				require.ErrorIs(t, err, cuda.ErrUnreachable)
			}
		}
		tells(t, pair[0], "drop")
	}
	there.End()
}

// What many goroutines open of another process is opened and closed once.
func TestOpenedByManyReal(t *testing.T) {
	here, there := twoWorkers(t)
	share(t, there, here, "text")
	tells(t, there, "fill", "7")
	tells(t, there, "sync")
	event, memory := exported(t, here.event), exported(t, here.buf)
	tells(t, here, "drop")
	l := &ledger{open: map[uint64]int{}}
	b := testgpu.Modified(t, &testgpu.Backend{Driver: here.d.Driver(), Devices: []*cuda.Device{here.d}}, l.install)
	manyOpenOnce(t, b, l, event, memory)
	memory.Size = 64
	openAndClose(t, b, l, event, memory, 30)
	there.End()
}

// An event that was closed while another process had it open, and those that are made
// after it, are not taken for one another, even if the driver gives them the same handle.
func TestHandlesOfLaterEvents(t *testing.T) {
	here, there := twoWorkers(t)
	share(t, here, there, "text")
	first := exported(t, here.event)
	require.NoError(t, here.event.Close())
	again := 0
	for range 100 {
		tells(t, here, "make")
		if exported(t, here.event).Handle == first.Handle {
			again++
			tells(t, there, "import", "event", "text", tells(t, here, "export", "event", "text")) // and the first stays open
			tells(t, here, "hold")
			tells(t, here, "record")
			state := tells(t, there, "query")
			tells(t, here, "release")
			tells(t, here, "await")
			require.Equal(t, "false true", state, "the handle of an event that is not the first any more")
			break
		}
		t.Cleanup(func(e *cuda.Event) func() { return func() { require.NoError(t, e.Close()) } }(here.event)) // keeps its place
	}
	t.Logf("the handle of a closed event was given out again: %d", again)
	there.End()
}

// A process that is stopped is not dead, and its work goes on.
func TestStoppedExporter(t *testing.T) {
	here, there := twoWorkers(t)
	kill, err := exec.LookPath("kill")
	if err != nil {
		t.Skip(err)
	}
	signal := func(name string) error {
		return exec.Command(kill, "-"+name, fmt.Sprint(there.Cmd.Process.Pid)).Run()
	}
	share(t, there, here, "text")
	tells(t, there, "spin", "500")
	tells(t, there, "fill", "77")
	tells(t, there, "record")
	all := testgpu.Waits(t, here.event)
	require.NoError(t, signal("STOP"))
	t.Cleanup(func() { _ = signal("CONT") })
	for _, w := range all {
		require.NoError(t, testgpu.Receive(t, w))
	}
	tells(t, here, "wait")
	tells(t, here, "copy")
	tells(t, here, "sync")
	tells(t, here, "check", "77")
	tells(t, here, "drop")
	require.NoError(t, signal("CONT"))
	there.End()
}
