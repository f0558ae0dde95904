package drivertest

import (
	"testing"
	"time"

	"github.com/purecuda/cuda/driver"
)

// RowLimit is how long a row may take.
const RowLimit = rowLimit

// Rows returns the names of the suite's rows.
func Rows() (names []string) {
	for _, r := range rows() {
		names = append(names, r.name)
	}
	return names
}

// RunRow runs the row that has the index i in Rows, which may take limit, on a
// driver that has two devices.
func RunRow(t testing.TB, i int, open func(testing.TB) *driver.API, limit time.Duration) {
	suite{open: open, limit: limit}.run(t, rows()[i], 2)
}
