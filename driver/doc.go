// Package driver is the contract between the library and a CUDA driver: the
// handle types, the flags, the result codes, and one table of driver entry
// points, [API].
//
// The package loads nothing and imports only the standard library. Package
// loader fills a table from NVIDIA's driver library, package cudatest from a
// simulated GPU; package cuda runs on either, and package drivertest tests
// either. Because the table is a struct of func fields and not an interface, a
// wrapper for tracing or fault injection copies it and replaces single fields:
//
//	faulty := *api
//	faulty.EventRecord = func(driver.Event, driver.Stream) driver.Result {
//		return driver.ErrorLaunchFailed
//	}
//
// Most programs never import this package.
package driver
