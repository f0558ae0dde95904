package main

import "github.com/purecuda/cuda/internal/bench"

// results are what one run of the command has measured: the content of
// performance.json.
type results struct {
	Date    string  `json:"date"` // UTC, "2006-01-02 15:04"
	Commit  string  `json:"commit"`
	Command string  `json:"command"`
	Go      string  `json:"go"`
	Machine machine `json:"machine"`
	// Rows has for each row, in their order, the single-threaded times first.
	Rows  []measured `json:"rows"`
	Peers []peer     `json:"peers"`
	Start start      `json:"start"`
}

// machine is what the times were measured on.
type machine struct {
	Device    string `json:"device"` // "1 × NVIDIA H200"
	Driver    string `json:"driver"` // "580.159.04"
	CUDA      string `json:"cuda"`   // "13.0"
	Processor string `json:"processor"`
	Cores     int    `json:"cores"`
	Kernel    string `json:"kernel"`
	Compiler  string `json:"compiler"` // of the C loop
	// Pinned tells that a single thread was measured on the quickest processor of the
	// moment, which was looked for again and again.
	Pinned bool `json:"pinned"`
}

// measured is how long an operation of a row takes in one of the ways to do it. All
// times are in nanoseconds. With several threads it is the time from one operation of
// a thread to its next: threads / time operations are done in all.
type measured struct {
	Row     string `json:"row"`
	Threads int    `json:"threads"`
	// Way is "C", "SyscallN", "RegisterFunc", "table" or "purecuda", which are measured
	// in one process, or the name of a peer.
	Way  string     `json:"way"`
	Time bench.Dist `json:"time"`
	// C is the C loop of the same process, round by round beside Time; nil where
	// the row has none.
	C *bench.Dist `json:"c,omitempty"`
	// OverC and TimesC are the difference and the ratio to that, round by round.
	OverC  *bench.Dist `json:"over_c,omitempty"`
	TimesC *bench.Dist `json:"times_c,omitempty"`
	// Note says in what the operation differs from the row's, or is empty.
	Note string `json:"note,omitempty"`
}

// peer is another library, measured in a process of its own.
type peer struct {
	Name    string `json:"name"` // "PyTorch", "CuPy", "cuda.core", "cuda.bindings", "cgo"
	Version string `json:"version,omitempty"`
	// Absent says why the peer was not measured, Missing why it lacks rows, by id.
	Absent  string            `json:"absent,omitempty"`
	Missing map[string]string `json:"missing,omitempty"`
}

// start is what it costs to begin, in microseconds.
type start struct {
	// Library is the time to open the driver's library and to find its functions,
	// Init that of cuInit, Context that of making the primary context.
	Library float64 `json:"library_us"`
	Init    float64 `json:"init_us"`
	Context float64 `json:"context_us"`
	// Rest is all else between Open and the first recorded event.
	Rest float64 `json:"rest_us"`
	// PackageInit is the initialisation of the packages that come with this one, in a
	// program that opens no driver, as the Go runtime reports it (inittrace). It is not
	// how much longer a process takes to begin.
	PackageInit float64 `json:"package_init_us"`
}
