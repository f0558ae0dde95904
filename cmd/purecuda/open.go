package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/cudatest"
)

// sources is where drivers come from; tests put others in their place.
type sources struct {
	cuda      func(library string) (*cuda.Driver, error)
	simulated func() (*cuda.Driver, error)
}

// system returns the sources of a real run.
func system() sources {
	return sources{
		cuda: func(library string) (*cuda.Driver, error) {
			return cuda.Open(&cuda.Options{Library: library})
		},
		simulated: func() (*cuda.Driver, error) {
			// Two devices, so that copies between devices are shown too.
			return cuda.OpenDriver(cudatest.New(cudatest.Config{Devices: 2}).API())
		},
	}
}

// choice is the value of the flag -driver.
type choice string

const (
	chooseAuto choice = "auto"
	chooseCUDA choice = "cuda"
	chooseSim  choice = "sim"

	choiceHelp = "`which` driver to use: auto, cuda (NVIDIA's) or sim (a simulated GPU);\n" +
		"auto is cuda if there is a device, and otherwise sim"
)

func (c *choice) String() string { return string(*c) }

// Set implements flag.Value.
func (c *choice) Set(s string) error {
	switch choice(s) {
	case chooseAuto, chooseCUDA, chooseSim:
		*c = choice(s)
		return nil
	}
	return errors.New("must be auto, cuda or sim")
}

// chosen is an opened driver and what must be said about it.
type chosen struct {
	*cuda.Driver
	simulated bool
	why       string // why it is a simulated one
}

// open opens the driver that was asked for.
func (from sources) open(c choice, library string) (*chosen, error) {
	var why string
	switch c {
	case chooseSim:
		why = "asked for with -driver sim"
	case chooseCUDA:
		drv, err := from.cuda(library)
		if err != nil {
			return nil, err
		}
		return &chosen{Driver: drv}, nil
	default:
		drv, err := from.cuda(library)
		if err == nil && drv.DeviceCount() > 0 {
			return &chosen{Driver: drv}, nil
		}
		why = whyNot(drv, err)
	}
	drv, err := from.simulated()
	if err != nil {
		return nil, fmt.Errorf("opening the simulated GPU: %w", err)
	}
	return &chosen{Driver: drv, simulated: true, why: why}, nil
}

// whyNot says in a few words why the real driver is not used. The whole story
// can be long: it has each place where a library was looked for.
func whyNot(drv *cuda.Driver, err error) string {
	const more = `"purecuda info -driver cuda" says more`
	switch {
	case err == nil:
		return fmt.Sprintf("%s has no device; %s", drv.Library(), more)
	case errors.Is(err, cuda.ErrDriverNotFound):
		return "no driver library was found; " + more
	case errors.Is(err, errors.ErrUnsupported):
		return "this program cannot load a driver; " + more
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	return first
}

// String describes the driver in one line.
func (c *chosen) String() string {
	if c.simulated {
		return fmt.Sprintf("simulated GPU (%s)", c.why)
	}
	return fmt.Sprintf("NVIDIA, %s, CUDA %s, %s",
		c.Library(), version(c.Version()), count(c.DeviceCount(), "device"))
}

// mark returns " (simulated)" for a simulated driver: the label of all that
// comes out of one.
func (c *chosen) mark() string {
	if c.simulated {
		return " (simulated)"
	}
	return ""
}

// version formats the driver's form of a CUDA version.
func version(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// count formats a number of things.
func count(n int, thing string) string {
	switch {
	case n == 1:
		return "1 " + thing
	case strings.HasSuffix(thing, "ch"):
		thing += "e"
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
