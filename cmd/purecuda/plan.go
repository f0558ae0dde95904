package main

import (
	"flag"
	"fmt"
)

const (
	// The default sizes: enough to reach a GPU's bandwidth, and little enough for
	// the simulated one, whose copies and products are the host's.
	defaultBatches   = 16
	defaultSize      = 64 << 20
	defaultMatrix    = 256
	simulatedBatches = 8
	simulatedSize    = 4 << 20
	simulatedMatrix  = 64

	// maxPinned keeps a slip of the finger from pinning all of a machine's memory.
	maxPinned = 16 << 30
	// maxMatrix keeps one from making the CPU calculate for minutes.
	maxMatrix = 1024
)

// plan is what the demo is to do.
type plan struct {
	batches int
	size    size
	n       int  // rows and columns of each batch's matrix
	graph   bool // all of it captured in a graph, and that launched
}

// flags adds the plan's flags.
func (p *plan) flags(fs *flag.FlagSet) {
	fs.IntVar(&p.batches, "batches", 0, fmt.Sprintf("`number` of batches, 1 to %d (default %d, simulated %d)", period, defaultBatches, simulatedBatches))
	fs.Var(&p.size, "size", fmt.Sprintf("`bytes` of each batch, such as 4096 or 64MiB (default %v, simulated %v)", size(defaultSize), size(simulatedSize)))
	fs.IntVar(&p.n, "matrix", 0, fmt.Sprintf("`rows` and columns of the matrix of each batch, 1 to %d (default %d, simulated %d)", maxMatrix, defaultMatrix, simulatedMatrix))
	fs.BoolVar(&p.graph, "graph", false, fmt.Sprintf("capture the pipeline as a graph, launch that %d times and check each; the times are the last one's", launches))
}

// misuse says what is wrong with the flags that were given, "" if nothing is.
func (p *plan) misuse(given map[string]bool) string {
	switch {
	case given["batches"] && (p.batches < 1 || p.batches > period):
		return fmt.Sprintf("-batches %d: must be 1 to %d, so that each byte tells its batch", p.batches, period)
	case given["matrix"] && (p.n < 1 || p.n > maxMatrix):
		return fmt.Sprintf("-matrix %d: must be 1 to %d", p.n, maxMatrix)
	}
	return ""
}

// complete puts in what was not given. It says if that is too much.
func (p *plan) complete(given map[string]bool, simulated bool) (tooMuch string) {
	defaults := plan{batches: defaultBatches, size: defaultSize, n: defaultMatrix}
	if simulated {
		defaults = plan{batches: simulatedBatches, size: simulatedSize, n: simulatedMatrix}
	}
	if !given["batches"] {
		p.batches = defaults.batches
	}
	if !given["size"] {
		p.size = defaults.size
	}
	if !given["matrix"] {
		p.n = defaults.n
	}
	if p.size > maxPinned || p.pinned() > maxPinned {
		return fmt.Sprintf("%s of %v with a %d×%d matrix would take twice as much pinned memory, and the limit is %v",
			count(p.batches, "batch"), p.size, p.n, p.n, size(maxPinned))
	}
	return ""
}

// pinned returns how much host memory the batches and their results take.
func (p *plan) pinned() size {
	matrix := size(4 * p.n * p.n) // of float32
	return 2 * size(p.batches) * (p.size + matrix)
}
