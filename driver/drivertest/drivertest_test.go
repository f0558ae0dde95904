package drivertest_test

import (
	"fmt"
	"maps"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/driver/drivertest"
)

// simulated opens simulated GPUs that must be left as clean as they were.
func simulated(devices int) func(testing.TB) *driver.API {
	return func(tb testing.TB) *driver.API {
		gpu := cudatest.New(cudatest.Config{Devices: devices})
		tb.Cleanup(func() {
			for _, problem := range gpu.Problems() {
				if strings.HasPrefix(problem, "leaked") {
					tb.Errorf("%s", problem)
				}
			}
		})
		return gpu.API()
	}
}

func TestSimulated(t *testing.T) {
	for _, devices := range []int{1, 2} {
		t.Run(fmt.Sprintf("devices=%d", devices), func(t *testing.T) { drivertest.Run(t, simulated(devices)) })
	}
}

// An old driver lacks functions that some rows need; nothing fails for that.
func TestSimulatedOld(t *testing.T) {
	open := func(testing.TB) *driver.API {
		return cudatest.New(cudatest.Config{Devices: 2, DriverVersion: driver.Floor}).API()
	}
	results := conform(t, open, drivertest.RowLimit, func(string) bool { return true })
	skipped := 0
	for name, r := range results {
		assert.False(t, r.Failed(), "%s\n%s", name, r.text())
		if r.skipped {
			skipped++
		}
	}
	assert.NotZero(t, skipped, "rows that hold a stream need StreamWaitValue32")
	assert.Less(t, skipped, len(results), "other rows do not")
}

// A wrapper that only passes on changes nothing; the recorder below records
// nothing either, so that the failures of the mutations are theirs.
func TestRecordedSuite(t *testing.T) {
	results := conform(t, simulated(2), drivertest.RowLimit, func(string) bool { return true })
	require.Len(t, results, len(drivertest.Rows()), "two rows have the same name")
	for name, r := range results {
		assert.False(t, r.Failed() || r.skipped, "%s\n%s", name, r.text())
	}
}

// TestRowsFail runs the suite on drivers that each break one rule, and demands
// that the rows of that rule fail, and that each row has been seen to fail.
func TestRowsFail(t *testing.T) {
	for _, row := range drivertest.Rows() {
		assert.True(t, row[:5] == "rule " || row[:8] == "driver: ", "the row's name %q begins with no rule", row)
		seen := false
		for _, m := range mutations {
			seen = seen || m.breaks(row)
		}
		assert.True(t, seen, "no mutation breaks %q", row)
	}
	for _, m := range mutations {
		t.Run(m.what, func(t *testing.T) {
			t.Parallel()
			open := func(testing.TB) *driver.API {
				sound := cudatest.New(cudatest.Config{Devices: 2}).API()
				api := *sound
				m.mutate(&api, *sound)
				return &api
			}
			// Some mutations block a row, which only the limit ends. On a busy machine, what
			// returns at once may not have returned when a row looks.
			results := map[string]*recorder{}
			passes := m.breaks
			for range 10 {
				maps.Copy(results, conform(t, open, 200*time.Millisecond, passes))
				passes = func(row string) bool { return m.breaks(row) && !results[row].Failed() }
			}
			require.NotEmpty(t, results)
			for name, r := range results {
				assert.True(t, r.Failed(), "%s passes", name)
				t.Logf("%s\n%s", name, r.text())
			}
		})
	}
}

// conform runs the chosen rows and returns what became of each.
func conform(t *testing.T, open func(testing.TB) *driver.API, limit time.Duration, chosen func(string) bool) map[string]*recorder {
	t.Helper()
	results := map[string]*recorder{}
	for i, row := range drivertest.Rows() {
		if chosen(row) {
			results[row] = recordRow(t, func(tb testing.TB) { drivertest.RunRow(tb, i, open, limit) })
		}
	}
	return results
}

// A recorder is a testing.TB whose failures do not fail the test.
type recorder struct {
	testing.TB // for what the suite does not use

	mu       sync.Mutex
	failed   bool
	skipped  bool
	lines    []string
	cleanups []func()
}

// recordRow calls f as testing would call a test.
func recordRow(t testing.TB, f func(testing.TB)) *recorder {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() { // whose end FailNow and SkipNow are
		defer close(done)
		defer r.cleanUp()
		f(r)
	}()
	<-done
	return r
}

func (r *recorder) cleanUp() {
	if last := len(r.cleanups) - 1; last >= 0 {
		f := r.cleanups[last]
		r.cleanups = r.cleanups[:last]
		defer r.cleanUp() // also where f fails
		f()
	}
}

func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *recorder) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func (r *recorder) Fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Errorf(format string, args ...any) {
	r.Logf(format, args...)
	r.Fail()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

func (r *recorder) Skipf(format string, args ...any) {
	r.Logf(format, args...)
	r.skipped = true
	runtime.Goexit()
}

func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}
