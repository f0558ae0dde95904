package cuda

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/purecuda/cuda/driver"
	"github.com/purecuda/cuda/internal/native"
	"github.com/purecuda/cuda/loader"
)

// ErrDriverNotFound: no CUDA driver library could be opened. The error that
// matches it names each place that was tried and what was wrong there.
var ErrDriverNotFound = loader.ErrNotFound

// Options says how to open the driver. The zero value is the recommended one.
type Options struct {
	// Library is the absolute path of the driver library. Empty: the library
	// that the system's loader finds as libcuda.so.1 (Windows: nvcuda.dll), then
	// the places where WSL, containers, NixOS and Jetson keep it.
	Library string
	// DetectRaces has the driver look for operations on the same memory that nothing orders,
	// see [DetectRaces]. It is for tests.
	DetectRaces bool
}

// Driver is an opened CUDA driver, NVIDIA's or a simulated one. Any number of
// goroutines may share it. It is never closed: like every CUDA program, the
// process keeps its contexts until it ends.
type Driver struct {
	native  *native.Driver
	version int
	devices []*Device
	noInit  driver.Result // why there is no device: cuInit's answer
	hook    atomic.Pointer[func(error)]
}

var opened struct {
	sync.Mutex
	drivers map[library]*Driver
}

// library is a driver library, and how it is used.
type library struct {
	*loader.Library
	detectRaces bool
}

// Open opens NVIDIA's driver (nil: default options) and initialises it
// (cuInit). It may take a few hundred milliseconds the first time. Opening the
// same library again in the same way returns the same Driver.
//
// On a machine that has the driver but no device Open succeeds, DeviceCount is
// 0, and [Driver.OpenDevice] says why. Without a driver the error matches
// [ErrDriverNotFound]; where the platform has none, errors.ErrUnsupported.
func Open(opts *Options) (*Driver, error) {
	if opts == nil {
		opts = &Options{}
	}
	lib, err := loader.Open(opts.Library)
	if err != nil {
		return nil, &Error{Op: "open driver", Err: err}
	}
	opened.Lock()
	defer opened.Unlock()
	key := library{lib, opts.DetectRaces}
	if d := opened.drivers[key]; d != nil {
		return d, nil
	}
	api := lib.API
	if opts.DetectRaces {
		api = DetectRaces(api)
	}
	d, err := OpenDriver(api)
	if err != nil {
		return nil, err
	}
	if opened.drivers == nil {
		opened.drivers = make(map[library]*Driver)
	}
	opened.drivers[key] = d
	return d, nil
}

// OpenDriver makes a Driver of a table of driver functions: a simulated GPU's,
// or one that wraps another. It calls cuInit. The table is copied; a function
// that every driver must have and that is nil is an error that names it.
func OpenDriver(api *driver.API) (*Driver, error) {
	const op = "open driver"
	if api == nil {
		return nil, invalid(op, "the table is nil")
	}
	own := *api
	if err := own.Complete(); err != nil {
		return nil, &Error{Op: op, Err: err}
	}
	d := &Driver{}
	d.native = native.NewDriver(&own, func(what string, err error) { d.cleanupFailed(failed(what, err)) })
	version, r := own.DriverGetVersion()
	if r != driver.Success {
		return nil, d.openFailed("cuDriverGetVersion", r)
	}
	d.version = int(version)
	switch r := own.Init(0); r {
	case driver.Success:
	case driver.ErrorNoDevice:
		d.noInit = r
		return d, nil
	default:
		return nil, d.openFailed("cuInit", r)
	}
	count, r := own.DeviceGetCount()
	if r != driver.Success {
		return nil, d.openFailed("cuDeviceGetCount", r)
	}
	for i := range count {
		ordinal, r := own.DeviceGet(i)
		if r != driver.Success {
			return nil, d.openFailed("cuDeviceGet", r)
		}
		d.devices = append(d.devices, newDevice(d, int(i), ordinal))
	}
	return d, nil
}

func (d *Driver) openFailed(function string, r driver.Result) error {
	detail := fmt.Sprintf("%s, library %s", function, d.describe())
	switch r {
	case driver.ErrorStubLibrary:
		detail += "; remove the toolkit's stubs directory from the library path"
	case driver.ErrorSystemDriverMismatch:
		detail += "; the kernel module is of another version: reboot, or install one version of both"
	case driver.ErrorSystemNotReady:
		detail += "; on systems with NVSwitch, see that the fabric manager runs"
	case driver.ErrorUnknown:
		detail += "; see that the nvidia kernel modules are loaded and /dev/nvidia* can be opened"
	}
	return &Error{Op: "open driver", Code: r, Detail: detail}
}

// usable refuses what Open and OpenDriver have not returned.
func (d *Driver) usable(op string) error {
	if d == nil || d.native == nil {
		return invalid(op, "the driver is nil")
	}
	return nil
}

func (d *Driver) describe() string {
	name := d.native.API.Source
	if name == "" {
		name = "of unknown origin"
	}
	if d.version == 0 {
		return name
	}
	return fmt.Sprintf("%s (CUDA %d.%d)", name, d.version/1000, d.version%1000/10)
}

// Version returns the newest CUDA version that the driver supports, as
// 1000*major + 10*minor: 13000 is CUDA 13.0.
func (d *Driver) Version() int {
	if d == nil {
		return 0
	}
	return d.version
}

// Library returns the path of the driver library, or the name of what stands
// in for one.
func (d *Driver) Library() string {
	if d == nil || d.native == nil {
		return ""
	}
	return d.native.API.Source
}

// Missing lists the optional driver functions that this driver is too old for.
// A call that needs one fails with an error that matches errors.ErrUnsupported.
func (d *Driver) Missing() []string {
	if d == nil || d.native == nil {
		return nil
	}
	return append([]string(nil), d.native.API.Missing...)
}

// API returns the table that the driver is used through, for functions that
// this package does not wrap, and for wrappers. It must not be changed.
func (d *Driver) API() *driver.API {
	if d == nil || d.native == nil {
		return nil
	}
	return d.native.API
}

// DeviceCount returns the number of devices, 0 where there are none.
func (d *Driver) DeviceCount() int {
	if d == nil {
		return 0
	}
	return len(d.devices)
}

// OpenDevice returns device index, counted from 0 in the driver's order. The
// same index gives the same *Device. Its primary context is made when first
// needed and kept until the process ends.
func (d *Driver) OpenDevice(index int) (*Device, error) {
	if index >= 0 && index < d.DeviceCount() {
		return d.devices[index], nil
	}
	op := fmt.Sprintf("open device %d", index)
	if err := d.usable(op); err != nil {
		return nil, err
	}
	if len(d.devices) == 0 {
		return nil, &Error{Op: op, Err: ErrNoDevice, Code: d.noInit,
			Detail: "library " + d.describe() + "; see that a GPU is there and that this process or container may use it"}
	}
	return nil, &Error{Op: op, Code: driver.ErrorInvalidDevice, Err: ErrInvalid,
		Detail: fmt.Sprintf("devices are 0 to %d", len(d.devices)-1)}
}

// OnCleanupError sets the function that is called with failures that no call could
// return: of objects destroyed after the last call that used them, or by the
// garbage collector. It may be called on any goroutine. By default, and with
// nil, they go to [slog.Default]. f must not call this package: it may run with internal
// locks held.
func (d *Driver) OnCleanupError(f func(error)) {
	switch {
	case d == nil:
	case f == nil:
		d.hook.Store(nil)
	default:
		d.hook.Store(&f)
	}
}

func (d *Driver) cleanupFailed(err error) {
	if f := d.hook.Load(); f != nil {
		(*f)(err)
		return
	}
	slog.Default().Error("cuda: a cleanup failed", "error", err)
}

// OpenDevice returns device index of the process-wide default driver, which is
// opened once, as by Open(nil).
func OpenDevice(index int) (*Device, error) {
	d, err := Open(nil)
	if err != nil {
		return nil, err
	}
	return d.OpenDevice(index)
}

// DeviceCount returns the number of devices of the process-wide default driver.
// Without a driver it is 0 and the error says why.
func DeviceCount() (int, error) {
	d, err := Open(nil)
	if err != nil {
		return 0, err
	}
	return d.DeviceCount(), nil
}
