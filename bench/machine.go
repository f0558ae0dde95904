//go:build linux && (amd64 || arm64) && !nocuda && !purecuda_syscalln

package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/purecuda/cuda"
)

// describe says what the times are measured on. What cannot be found out is empty.
func describe(drv *cuda.Driver, compiler string) (machine, error) {
	dev, err := drv.OpenDevice(0)
	if err != nil {
		return machine{}, err
	}
	name, err := dev.Name()
	if err != nil {
		return machine{}, err
	}
	return machine{
		Device:    fmt.Sprintf("%d × %s", drv.DeviceCount(), name),
		Driver:    driverVersion(),
		CUDA:      fmt.Sprintf("%d.%d", drv.Version()/1000, drv.Version()%1000/10),
		Processor: processor(read("/proc/cpuinfo")),
		Cores:     runtime.NumCPU(),
		Kernel:    read("/proc/sys/kernel/osrelease"),
		Compiler:  compiler,
	}, nil
}

// driverVersion returns the kernel module's version, which containers may hide in one
// place and not in another.
func driverVersion() string {
	if v := read("/sys/module/nvidia/version"); v != "" {
		return v
	}
	if v := moduleVersion(read("/proc/driver/nvidia/version")); v != "" {
		return v
	}
	out, err := exec.Command("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").Output()
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(first)
}

var numbers = regexp.MustCompile(`\b\d+\.\d+(\.\d+)?\b`)

// moduleVersion finds the version in "NVRM version: NVIDIA UNIX ... 580.159.04 ...".
func moduleVersion(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	return numbers.FindString(first)
}

// processor finds the name in the text of /proc/cpuinfo; ARM's has none.
func processor(cpuinfo string) string {
	for line := range strings.Lines(cpuinfo) {
		key, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// built is the commit, set by scripts/bundle: not every build has the Go command's own
// stamp.
var built string

// commit returns what this program was built from.
func commit() string {
	if built != "" {
		return built
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var revision, changed string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(len(s.Value), 7)]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = " with uncommitted changes"
		}
	}
	return revision + changed
}

// read returns a file's text without the space around it, or nothing.
func read(name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
