//go:build linux && (amd64 || arm64) && !nocuda && !purecuda_syscalln

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/ebitengine/purego"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
)

// What a child process measures, and where it finds the driver.
const (
	roleStart       = "start"                  // the way to the first recorded event
	roleNothing     = "nothing"                // what the Go runtime says of package initialisation
	fileVariable    = "PURECUDA_BENCH_FILE"    // the driver library that Open has found
	libraryVariable = "PURECUDA_BENCH_LIBRARY" // the one that it is asked for, or empty
	starts          = 9
)

// measureStart begins several processes, one after the other, and takes the medians.
func measureStart(ctx context.Context, file string, o options) (start, error) {
	n := starts
	if o.quick {
		n = 2
	}
	var library, init, context, rest, packages []float64
	for range n {
		out, _, err := fresh(ctx, roleStart, file, o.library)
		if err != nil {
			return start{}, err
		}
		var s start
		if err := json.Unmarshal(out, &s); err != nil {
			return start{}, fmt.Errorf("%w: %q", err, out)
		}
		_, trace, err := fresh(ctx, roleNothing, "", "")
		if err != nil {
			return start{}, err
		}
		t, err := packageInit(string(trace))
		if err != nil {
			return start{}, err
		}
		library, init, context = append(library, s.Library), append(init, s.Init), append(context, s.Context)
		rest, packages = append(rest, s.Rest), append(packages, t)
	}
	median := func(values []float64) float64 { return dist(values).Median }
	return start{median(library), median(init), median(context), median(rest), median(packages)}, nil
}

// fresh runs this program as a child with a role.
func fresh(ctx context.Context, role, file, library string) (stdout, stderr []byte, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), roleVariable+"="+role, fileVariable+"="+file, libraryVariable+"="+library)
	if role == roleNothing {
		cmd.Env = append(cmd.Env, "GODEBUG=inittrace=1")
	}
	var out, text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &text
	if err := cmd.Run(); err != nil {
		return nil, nil, fmt.Errorf("a child process that measures %q: %w: %s", role, err, lastLine(text.String()))
	}
	return out.Bytes(), text.Bytes(), nil
}

// child is what such a process does.
func child(role string, stdout, stderr io.Writer) int {
	if role == roleNothing {
		return 0
	}
	s, err := toFirstEvent(os.Getenv(fileVariable), os.Getenv(libraryVariable))
	if err == nil {
		err = json.NewEncoder(stdout).Encode(s)
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

// toFirstEvent goes the way from nothing to the first recorded event in a process that
// has not used the driver, and says where the time goes.
//
// What the driver needs for itself, to be mapped, cuInit and the primary context, is
// done first, by its bare functions. What Open and the rest take after that is this
// module's own: the driver is there already, and answers at once when the module asks
// for the same again.
func toFirstEvent(file, library string) (s start, err error) {
	last := time.Now()
	lap := func() float64 {
		now := time.Now()
		t := now.Sub(last)
		last = now
		return float64(t) / float64(time.Microsecond)
	}
	lib, err := openLibrary(file)
	if err != nil {
		return s, err
	}
	cuInit, noInit := lib.find("cuInit")
	retain, noRetain := lib.find("cuDevicePrimaryCtxRetain")
	if err := errors.Join(noInit, noRetain); err != nil {
		return s, err
	}
	s.Library = lap()
	r, _, _ := purego.SyscallN(cuInit, 0)
	if s.Init = lap(); int32(r) != 0 {
		return s, fmt.Errorf("cuInit: %w", driver.Result(int32(r)))
	}
	word := new(uint64)
	r, _, _ = purego.SyscallN(retain, address(word), 0) // of device 0, whose handle is 0
	if s.Context = lap(); int32(r) != 0 {
		return s, fmt.Errorf("cuDevicePrimaryCtxRetain: %w", driver.Result(int32(r)))
	}

	drv, err := cuda.Open(&cuda.Options{Library: library})
	if err != nil {
		return s, err
	}
	s.Library += lap()
	dev, err := drv.OpenDevice(0)
	if err != nil {
		return s, err
	}
	stream, err := dev.NewStream(nil)
	if err != nil {
		return s, err
	}
	e := cuda.NewEvent(nil)
	if err := e.Record(stream); err != nil {
		return s, err
	}
	s.Rest = lap()
	return s, errors.Join(e.Close(), stream.Close())
}

// packageInit adds up what a program takes to initialise the packages that come with
// this module, in microseconds, from what the Go runtime prints with inittrace=1:
//
//	init github.com/ebitengine/purego @0.31 ms, 0.022 ms clock, 3024 bytes, 42 allocs
//
// The packages of this command are not among them.
func packageInit(trace string) (float64, error) {
	const module = "github.com/purecuda/cuda"
	var sum float64
	found := false
	for line := range strings.Lines(trace) {
		words := strings.Fields(line)
		if len(words) < 6 || words[0] != "init" {
			continue
		}
		found = true
		of := words[1]
		ours := of == module || strings.HasPrefix(of, module+"/") && !strings.HasPrefix(of, module+"/internal/bench")
		if !ours && !strings.HasPrefix(of, "github.com/ebitengine/purego") {
			continue
		}
		ms, err := strconv.ParseFloat(words[4], 64)
		if err != nil {
			return 0, fmt.Errorf("%q: %w", line, err)
		}
		sum += 1000 * ms
	}
	if !found {
		return 0, errors.New("GODEBUG=inittrace=1 printed nothing")
	}
	return sum, nil
}
