package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/purecuda/cuda"
	"github.com/purecuda/cuda/driver"
)

const infoDoes = "Shows the driver and its devices. It makes a context on each device, because the\n" +
	"free memory and the priorities cannot be had without one."

// facts is what info has to tell.
type facts struct {
	Simulated bool         `json:"simulated"`
	Driver    string       `json:"driver"`
	Library   string       `json:"library"`
	CUDA      string       `json:"cuda"`
	Missing   []string     `json:"missing"`
	Devices   []deviceFact `json:"devices"`
	NoDevice  string       `json:"no_device,omitempty"` // why there is none
}

// deviceFact is what there is to know of a device. What could not be found out
// is zero and has its reason in Problems.
type deviceFact struct {
	Index            int      `json:"index"`
	Name             string   `json:"name"`
	UUID             string   `json:"uuid"`
	PCIBusID         string   `json:"pci_bus_id"`
	Compute          string   `json:"compute_capability"`
	TotalMemory      uint64   `json:"memory_total"`
	FreeMemory       uint64   `json:"memory_free"`
	LeastPriority    int      `json:"priority_least"`
	GreatestPriority int      `json:"priority_greatest"`
	Problems         []string `json:"problems,omitempty"`
}

func info(args []string, stdout, stderr io.Writer, from sources) int {
	fs := newFlags(stderr, "info", infoDoes)
	which := chooseAuto
	fs.Var(&which, "driver", choiceHelp)
	library := fs.String("library", "", "absolute `path` of the driver library; implies -driver cuda")
	asJSON := fs.Bool("json", false, "write one JSON object instead of text")
	if code, ok := parse(fs, args); !ok {
		return code
	}
	if *library != "" {
		if which == chooseSim {
			return misuse(fs, "-library is of no use with -driver sim")
		}
		which = chooseCUDA
	}
	drv, err := from.open(which, *library)
	if err != nil {
		fmt.Fprintf(stderr, "purecuda info: %v\n", err)
		if errors.Is(err, cuda.ErrDriverNotFound) && *library == "" {
			fmt.Fprintln(stderr, "To name the library here: purecuda info -library PATH")
		}
		return exitFailed
	}
	f := collect(drv)
	if *asJSON {
		if err := writeJSON(stdout, f); err != nil {
			fmt.Fprintf(stderr, "purecuda info: %v\n", err)
			return exitFailed
		}
	} else {
		f.print(stdout)
	}
	return f.complain(stderr)
}

// collect asks the driver and each device.
func collect(drv *chosen) *facts {
	f := &facts{
		Simulated: drv.simulated, Driver: drv.String(), Library: drv.Library(), CUDA: version(drv.Version()),
		Missing: append([]string{}, drv.Missing()...), Devices: []deviceFact{},
	}
	if drv.DeviceCount() == 0 {
		if _, err := drv.OpenDevice(0); err != nil {
			f.NoDevice = err.Error()
		}
	}
	for i := range drv.DeviceCount() {
		d, err := drv.OpenDevice(i)
		if err != nil {
			f.Devices = append(f.Devices, deviceFact{Index: i, Problems: []string{err.Error()}})
			continue
		}
		f.Devices = append(f.Devices, ask(d))
	}
	return f
}

func ask(d *cuda.Device) deviceFact {
	f := deviceFact{Index: d.Index()}
	note := func(err error) {
		if err != nil {
			f.Problems = append(f.Problems, err.Error())
		}
	}
	var err error
	f.Name, err = d.Name()
	note(err)
	id, err := d.UUID()
	note(err)
	f.UUID = id.String()
	f.PCIBusID, err = pciBusID(d)
	note(err)
	major, minor, err := d.ComputeCapability()
	note(err)
	f.Compute = fmt.Sprintf("%d.%d", major, minor)
	f.TotalMemory, err = d.TotalMemory()
	note(err)
	f.FreeMemory, err = d.FreeMemory()
	note(err)
	f.LeastPriority, f.GreatestPriority, err = d.StreamPriorityRange()
	note(err)
	return f
}

// pciBusID asks the table itself.
func pciBusID(d *cuda.Device) (string, error) {
	api := d.Driver().API()
	native, r := api.DeviceGet(int32(d.Index()))
	if r != driver.Success {
		return "", fmt.Errorf("pci bus id: %w", r)
	}
	id, r := api.DeviceGetPCIBusID(native)
	if r != driver.Success {
		return "", fmt.Errorf("pci bus id: %w", r)
	}
	return id, nil
}

// print writes the facts for people.
func (f *facts) print(w io.Writer) {
	fmt.Fprintf(w, "driver:   %s\n", f.Driver)
	fmt.Fprintf(w, "version:  CUDA %s\n", f.CUDA)
	fmt.Fprintf(w, "library:  %s\n", f.Library)
	missing := "none"
	if len(f.Missing) > 0 {
		missing = strings.Join(f.Missing, ", ")
	}
	fmt.Fprintf(w, "missing:  %s\n", missing)
	label := ""
	if f.Simulated {
		label = " (simulated)"
	}
	for i := range f.Devices {
		d := &f.Devices[i]
		fmt.Fprintf(w, "\ndevice %d%s\n", d.Index, label)
		fmt.Fprintf(w, "  name:                %s\n", d.Name)
		fmt.Fprintf(w, "  uuid:                %s\n", d.UUID)
		fmt.Fprintf(w, "  pci bus id:          %s\n", d.PCIBusID)
		fmt.Fprintf(w, "  compute capability:  %s\n", d.Compute)
		fmt.Fprintf(w, "  memory:              %v, %v free\n", size(d.TotalMemory), size(d.FreeMemory))
		fmt.Fprintf(w, "  stream priorities:   %d (least) to %d (greatest)\n", d.LeastPriority, d.GreatestPriority)
	}
}

// complain says what could not be found out, and returns the exit code.
func (f *facts) complain(w io.Writer) int {
	code := exitOK
	if len(f.Devices) == 0 {
		fmt.Fprintf(w, "purecuda info: %s\n", f.NoDevice)
		code = exitFailed
	}
	for i := range f.Devices {
		for _, p := range f.Devices[i].Problems {
			fmt.Fprintf(w, "purecuda info: device %d: %s\n", f.Devices[i].Index, p)
			code = exitFailed
		}
	}
	return code
}
