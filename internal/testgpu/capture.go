package testgpu

import (
	"errors"
	"runtime"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
)

// CaptureModes are the driver's. Package cuda captures in relaxed mode alone, but other
// libraries do not.
var CaptureModes = map[string]driver.CaptureMode{
	"relaxed": driver.CaptureModeRelaxed, "thread-local": driver.CaptureModeThreadLocal, "global": driver.CaptureModeGlobal}

// CaptureElsewhere captures what f enqueues on s as another library does: by the driver's
// own functions, in a mode, on a locked thread. The graph is destroyed.
func CaptureElsewhere(s *cuda.Stream, mode driver.CaptureMode, f func() error) error {
	_, err := NodesElsewhere(s, mode, f)
	return err
}

// NodesElsewhere is CaptureElsewhere, and returns how many nodes the graph had.
func NodesElsewhere(s *cuda.Stream, mode driver.CaptureMode, f func() error) (nodes uint64, err error) {
	runtime.LockOSThread() // where it must end
	defer runtime.UnlockOSThread()
	api := s.Device().Driver().API()
	r := api.StreamBeginCapture(s.Handle(), mode)
	if r != driver.Success {
		return 0, r
	}
	failed := f()
	g, r := api.StreamEndCapture(s.Handle())
	if r != driver.Success {
		return 0, errors.Join(failed, r)
	}
	nodes, r = api.GraphGetNodes(g, nil)
	if r != driver.Success {
		return 0, errors.Join(failed, r)
	}
	if r := api.GraphDestroy(g); r != driver.Success {
		failed = errors.Join(failed, r)
	}
	return nodes, failed
}

// CaptureWays are package cuda's way to capture, and another library's in each mode. The
// graph is destroyed.
func CaptureWays() map[string]func(s *cuda.Stream, f func() error) error {
	ways := map[string]func(s *cuda.Stream, f func() error) error{
		"this package's": func(s *cuda.Stream, f func() error) error {
			g, err := s.Capture(f)
			if err != nil {
				return err
			}
			return g.Close()
		},
	}
	for name, mode := range CaptureModes {
		ways["another's, "+name] = func(s *cuda.Stream, f func() error) error { return CaptureElsewhere(s, mode, f) }
	}
	return ways
}
