package driver

import (
	"errors"
	"fmt"
)

// Result is a CUresult: what every driver call answers. Like [syscall.Errno]
// it is an integer that is an error; unlike it, [Success] is a value too, so
// compare with Success before treating a Result as an error, or use
// [Result.Err].
//
// Names and texts are known without a driver.
type Result int32

// Err returns nil for [Success], otherwise r.
func (r Result) Err() error {
	if r == Success {
		return nil
	}
	return r
}

// Name returns the driver's name of the code, such as CUDA_ERROR_NOT_READY.
func (r Result) Name() string {
	if t, ok := results[r]; ok {
		return t.name
	}
	return "CUDA_ERROR"
}

// Error formats r as name, number and meaning.
func (r Result) Error() string {
	t, ok := results[r]
	if !ok {
		return fmt.Sprintf("CUDA_ERROR (%d): a code that this library does not know", int32(r))
	}
	return fmt.Sprintf("%s (%d): %s", t.name, int32(r), t.text)
}

// Is makes the codes for what a driver or a device cannot do match
// [errors.ErrUnsupported].
func (r Result) Is(target error) bool {
	switch r {
	case ErrorCallRequiresNewerDriver, ErrorNotSupported:
		return target == errors.ErrUnsupported
	}
	return false
}

// Sticky reports whether r leaves the context unusable: every later call on
// the device fails, and only a new process helps.
func (r Result) Sticky() bool {
	switch r {
	case ErrorECCUncorrectable, ErrorNVLinkUncorrectable, ErrorContained,
		ErrorIllegalAddress, ErrorLaunchTimeout, ErrorContextIsDestroyed, ErrorAssert,
		ErrorHardwareStackError, ErrorIllegalInstruction, ErrorMisalignedAddress,
		ErrorInvalidAddressSpace, ErrorInvalidPC, ErrorLaunchFailed, ErrorTensorMemoryLeak,
		ErrorMPSClientTerminated, ErrorExternalDevice:
		return true
	}
	return false
}
