package simulated_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
	"github.com/purecuda/cuda/cudatest/simulated"
)

// A recorder is a testing.TB that notes what fails, and runs its cleanups when it is told to.
type recorder struct {
	testing.TB
	errors   []string
	cleanups []func()
}

func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}
func (r *recorder) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

func (r *recorder) end() {
	for _, f := range r.cleanups {
		f()
	}
}

// A stream that is left open, and a forgotten wait, fail the test, and nothing else does.
func TestDevice(t *testing.T) {
	for name, c := range map[string]struct {
		wait, close bool
		want        []string
	}{
		"right":          {true, true, nil},
		"no wait":        {false, true, []string{`^race: fill at simulated_test.go:\d+ and fill at simulated_test.go:\d+ are not ordered`}},
		"a stream stays": {true, false, []string{`^leaked: stream .* made at simulated_test.go:\d+$`}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &recorder{TB: t}
				dev, gpu := simulated.Device(r, nil)
				a, err := dev.NewStream(nil)
				require.NoError(t, err)
				b, err := dev.NewStream(nil)
				require.NoError(t, err)
				x, err := cuda.AllocAsync[int32](a, 100)
				require.NoError(t, err)
				require.NoError(t, b.WaitStream(a))
				gpu.Run(b, time.Minute)
				require.NoError(t, cuda.Fill(a, x, 1))
				if c.wait {
					require.NoError(t, b.WaitStream(a))
				}
				require.NoError(t, cuda.Fill(b, x, 2))
				require.NoError(t, b.Synchronize())
				require.NoError(t, a.Synchronize())
				require.NoError(t, x.Close())
				require.NoError(t, b.Close())
				if c.close {
					require.NoError(t, a.Close())
				}
				r.end()
				require.Len(t, r.errors, len(c.want), "%v", r.errors)
				for i, want := range c.want {
					require.Regexp(t, want, r.errors[i])
				}
			})
		})
	}
}

// What was closed while it was used is freed a moment later.
func TestClosedInUse(t *testing.T) {
	dev, gpu := simulated.Device(t, nil)
	s, err := dev.NewStream(nil)
	require.NoError(t, err)
	host, err := cuda.AllocHost[int32](dev, 100, nil)
	require.NoError(t, err)
	x, err := cuda.Alloc[int32](dev, 100)
	require.NoError(t, err)
	gpu.Run(s, 10*time.Millisecond)
	require.NoError(t, cuda.Copy(s, x, host))
	require.NoError(t, host.Close())
	require.NoError(t, s.Close())
	require.NoError(t, x.Close())
}

func TestConfig(t *testing.T) {
	dev, _ := simulated.Device(t, &cudatest.Config{Name: "mine"})
	name, err := dev.Name()
	require.NoError(t, err)
	require.Equal(t, "mine", name)
	require.Panics(t, func() { simulated.Device(&recorder{TB: t}, &cudatest.Config{Devices: -1}) })
}
