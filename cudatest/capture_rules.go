package cudatest

import "github.com/purecuda/cuda/driver"

// forbidden reports whether captures forbid the calling thread the calls that
// count as unsafe, which every caller of it is: those that might depend on
// unfinished work, and most that make or free memory or executable graphs. Such
// a call invalidates these captures.
func (p *Process) forbidden() bool {
	if len(p.captures) == 0 {
		return false
	}
	id, mode := threadID(), p.thread(false).mode
	if mode == driver.CaptureModeRelaxed {
		return false
	}
	any := false
	for _, c := range p.captures {
		own := c.thread == id && c.mode != driver.CaptureModeRelaxed
		others := mode == driver.CaptureModeGlobal && c.mode == driver.CaptureModeGlobal
		if !c.killed && (own || others) {
			c.kill()
			any = true
		}
	}
	return any
}

// capturedIn reports whether streams of c are capturing, and invalidates their
// captures.
func (p *Process) capturedIn(c *context) bool {
	any := false
	for _, k := range p.captures {
		for _, s := range k.streams {
			if s.ctx == c {
				k.kill()
				any = true
			}
		}
	}
	return any
}

// legacyCapture returns a capture on which work in the legacy default stream s
// would depend, if there is one.
func (s *stream) legacyCapture() *capture {
	if !s.legacy {
		return nil
	}
	for _, c := range s.ctx.proc.captures {
		for _, b := range c.streams {
			if b.ctx == s.ctx && b.blocking() && !c.killed {
				return c
			}
		}
	}
	return nil
}

// implicit answers for work in the legacy default stream that would depend on a
// capture.
func (s *stream) implicit() driver.Result {
	if c := s.legacyCapture(); c != nil {
		c.kill()
		return driver.ErrorStreamCaptureImplicit
	}
	return driver.Success
}
