// Package native has the objects of the driver, one type for each kind: devices, streams,
// events, memory, modules, graphs and captures. It decides how long each of them lives,
// what a capture may touch and when memory is given back. Package cuda puts arguments'
// checks, names of operations and documentation in front of it.
//
// Its errors are the driver's results, or a [*Refusal] for a rule that a call would break.
package native

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/purecuda/cuda/driver"
)

// Rules that a call can break. Package cuda exports them.
var (
	ErrClosed         = errors.New("already closed")
	ErrNotTimed       = errors.New("the event was made without timing")
	ErrNotRecorded    = errors.New("the event has not been recorded")
	ErrNotCompleted   = errors.New("the event has not completed")
	ErrDeviceMismatch = errors.New("not of the same device")
	ErrNoInterprocess = errors.New("not made for use between processes")
	ErrPeerGone       = errors.New("the other process is gone")
	ErrCaptured       = errors.New("the event belongs to a stream capture")
	ErrCapturing      = errors.New("not possible during a stream capture")
	ErrNoDevice       = errors.New("no CUDA device is there")
	ErrInvalid        = errors.New("invalid argument")
)

// Refusal is an error for a call that breaks a rule. Code is the driver's answer if it was
// asked.
type Refusal struct {
	Err    error
	Code   driver.Result
	Detail string
}

func (r *Refusal) Error() string { return r.Err.Error() + ": " + r.Detail }

// Unwrap returns the rule.
func (r *Refusal) Unwrap() error { return r.Err }

func closedError(what string) error { return &Refusal{Err: ErrClosed, Detail: what} }

var errTwoDrivers = &Refusal{Err: ErrDeviceMismatch, Detail: "they come from two different drivers"}

// failed is r as an error, nil for Success.
func failed(r driver.Result) error {
	if r == driver.Success {
		return nil
	}
	return r
}

// ignoreExit is r, but Success when the process is ending, and everything with it.
func ignoreExit(r driver.Result) driver.Result {
	if r == driver.ErrorDeinitialized {
		return driver.Success
	}
	return r
}

// Driver is a table of driver functions and what its devices share.
type Driver struct {
	API   *driver.API
	Quiet *driver.API // the same, in relaxed capture mode
	Live  Live
	// OnCleanupError is called with failures that no call can return.
	OnCleanupError func(what string, err error)

	places    places
	hostCalls hostCalls
	sharing   sharing
	devices   []*Device
}

// NewDriver makes a Driver of a complete table. onCleanupError is called on any goroutine.
func NewDriver(api *driver.API, onCleanupError func(what string, err error)) *Driver {
	return &Driver{API: api, Quiet: api.Quiet(), OnCleanupError: onCleanupError}
}

// Live counts objects that were made and not destroyed; Forgotten those that the garbage
// collector had to close.
type Live struct {
	Streams, ExternalStreams, Events, Buffers, HostBuffers, Modules, Graphs, Forgotten, hostFuncs atomic.Int64
}

// closeFailed reports that something could not be given back.
func (d *Driver) closeFailed(what string, err error) {
	if err != nil {
		d.OnCleanupError(what+" destroy", err)
	}
}

// cleanupFailed reports that something could not be destroyed.
func (d *Driver) cleanupFailed(what string, r driver.Result) {
	if r = ignoreExit(r); r != driver.Success {
		d.OnCleanupError(what+" destroy", r)
	}
}

// places gives each stream a serial number, by which other streams remember that they have
// waited for it. A destroyed stream's serial goes to another stream, which goes on with its
// numbers, so that what is remembered of the old stream says nothing about the new one.
type places struct {
	mu   sync.Mutex
	last uint64
	free []place
}

func (p *places) take() place {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		free := p.free[n-1]
		p.free = p.free[:n-1]
		return free
	}
	return p.next()
}

// next returns a serial that no stream has had, or 0 when there are none left: a stream
// with serial 0 is never remembered.
func (p *places) next() place {
	if p.last == maxSerial {
		return 0
	}
	p.last++
	return makePlace(p.last, 0)
}

func (p *places) renew() place {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next()
}

func (p *places) give(last place) {
	if last.serial() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, last)
}
