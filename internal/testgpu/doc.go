// Package testgpu has what the tests of several packages share: devices to try things on,
// the simulated GPU in every run and a real one where there is one; objects that are closed
// when a test ends; streams that are held; tables of driver functions that are counted,
// delayed or replaced; and waits with a deadline. Only tests import it.
package testgpu
