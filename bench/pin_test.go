//go:build linux && (amd64 || arm64) && !nocuda && !purecuda_syscalln

package main

import (
	"errors"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
)

var (
	allowedList = regexp.MustCompile(`(?m)^Cpus_allowed_list:\s*(\S+)$`)
	everywhere  = allowedList.FindString(read("/proc/self/status")) // before any test
)

// boundThreads returns the threads that may not run where this process may.
func boundThreads(t *testing.T) (bound []string) {
	all, err := filepath.Glob("/proc/self/task/*/status")
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for _, name := range all {
		if text := read(name); text != "" && allowedList.FindString(text) != everywhere {
			bound = append(bound, name)
		}
	}
	return bound
}

// withNewThreads makes Go begin threads, from this thread too, and calls do while they are
// there. They end with it, so the next call needs new ones. It returns how many are new.
func withNewThreads(t *testing.T, do func()) (made int) {
	ids := func() []string {
		all, err := filepath.Glob("/proc/self/task/*")
		require.NoError(t, err)
		return all
	}
	before := ids()
	const n = 20
	var here, ended sync.WaitGroup
	end := make(chan struct{})
	here.Add(n)
	for range n {
		ended.Go(func() {
			runtime.LockOSThread() // and never unlocked
			here.Done()
			<-end
		})
	}
	here.Wait()
	for _, id := range ids() {
		if !slices.Contains(before, id) {
			made++
		}
	}
	do()
	close(end)
	ended.Wait()
	return made
}

// several skips a test that wants more than one processor, and returns all of them.
func several(t *testing.T) processors {
	allowed, err := affinity()
	require.NoError(t, err)
	if len(allowed.each()) < 2 {
		t.Skip("only one processor")
	}
	return allowed
}

func TestQuickest(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	allowed := several(t)
	defer func() { require.NoError(t, allowed.set()) }()
	all := allowed.each()
	for _, best := range []processors{all[0], all[len(all)-1]} {
		visits := make(map[processors]int)
		require.NoError(t, quickest(allowed, func() (time.Duration, error) {
			here, err := affinity()
			require.NoError(t, err)
			visits[here]++
			if here == best && visits[here] == pinSamples {
				return 1, nil // only its best sample is better
			}
			return 2, nil
		}))
		here, err := affinity()
		require.NoError(t, err)
		require.Equal(t, best, here)
		require.Len(t, visits, len(all))
		for _, n := range visits {
			require.Equal(t, pinSamples, n)
		}
	}
	broken := errors.New("broken")
	require.ErrorIs(t, quickest(allowed, func() (time.Duration, error) { return 0, broken }), broken)
	require.Error(t, processors{}.set())
}

// openMeter returns one on a driver that does next to nothing.
func openMeter(t *testing.T, progress *strings.Builder) *meter {
	library := emptyDriver(t) // skips the test without a C compiler
	loop, _, err := compile(t.TempDir())
	require.NoError(t, err)
	drv, err := cuda.Open(&cuda.Options{Library: library})
	require.NoError(t, err)
	m, err := newMeter(drv, loop, progress)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.close()) })
	return m
}

// Only the measuring thread is bound, only while it measures, and to one processor.
func TestPinned(t *testing.T) {
	withThreads(t, 1)
	allowed := several(t)
	var progress strings.Builder
	m := openMeter(t, &progress)
	var calls []int
	made := 0
	require.NoError(t, m.pinned(2*pinnedRounds+20, func(rounds int) error {
		calls = append(calls, rounds)
		here, err := affinity()
		require.NoError(t, err)
		if rounds == 0 {
			require.Equal(t, allowed, here, "what is made at first use is made on a free thread")
			return nil
		}
		require.Len(t, here.each(), 1)
		made += withNewThreads(t, func() { require.Len(t, boundThreads(t), 1) })
		return nil
	}))
	require.Equal(t, []int{0, pinnedRounds, pinnedRounds, 20}, calls)
	require.Positive(t, made, "the test made no threads")
	require.True(t, m.bound)
	require.Empty(t, boundThreads(t))
	require.Empty(t, progress.String())

	broken := errors.New("broken")
	require.ErrorIs(t, m.pinned(1, func(rounds int) error {
		if rounds == 0 {
			return nil
		}
		return broken
	}), broken)
	require.Empty(t, boundThreads(t))
}

// Without a processor that is known to be the quickest all is measured on any.
func TestNotPinned(t *testing.T) {
	withThreads(t, 1)
	var progress strings.Builder
	m := openMeter(t, &progress)
	m.driver = 0 // finds nothing
	rounds := 0
	require.NoError(t, m.pinned(60, func(n int) error { rounds += n; return nil }))
	require.Equal(t, 60, rounds)
	require.False(t, m.bound)
	require.Contains(t, progress.String(), "was not bound to a processor: ")
	require.Empty(t, boundThreads(t))
}
