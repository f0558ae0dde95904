// Command cgo-peer does the rows of the benchmark as a Go program with cgo does:
//
//	cgo-peer REQUEST.json
//
// It is one of the peers, so it prints one JSON document. It shares no code with the
// module that it is compared with.
package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
)

type request struct {
	Library     string         `json:"library"`
	Libcuda     string         `json:"libcuda"`
	Rounds      int            `json:"rounds"`
	Batches     map[string]int `json:"batches"`
	Threads     []int          `json:"threads"`
	ScaleRounds int            `json:"scale_rounds"`
	// How many operations each of several threads does in a sample.
	ScaleBatches  map[string]int `json:"scale_batches"`
	ScaleBatchesC map[string]int `json:"scale_batches_c"`
	Kernel        string         `json:"kernel"`
	KernelName    string         `json:"kernel_name"`
}

type answer struct {
	Name    string            `json:"name"`
	Version string            `json:"version"`
	Absent  string            `json:"absent"`
	Missing map[string]string `json:"missing"`
	Rows    []measured        `json:"rows"`
}

// measured has the nanoseconds for one operation, by round.
type measured struct {
	Row     string    `json:"row"`
	Threads int       `json:"threads"`
	Note    string    `json:"note"`
	Time    []float64 `json:"time"`
	C       []float64 `json:"c"`
}

func main() {
	// The context stays current on this thread.
	runtime.LockOSThread()
	a := &answer{Name: "cgo", Version: runtime.Version(), Missing: map[string]string{}, Rows: []measured{}}
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: cgo-peer REQUEST.json")
		os.Exit(2)
	}
	if err := a.measure(os.Args[1]); err != nil {
		a.Absent = err.Error()
	}
	if err := json.NewEncoder(os.Stdout).Encode(a); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (a *answer) measure(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var req request
	if err := json.Unmarshal(text, &req); err != nil {
		return err
	}
	d, err := open(&req)
	if err != nil {
		return err
	}
	lanes := make([]*lane, slices.Max(req.Threads))
	for i := range lanes {
		if lanes[i], err = d.newLane(); err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(req.Batches)) {
		if !slices.ContainsFunc(rows, func(r row) bool { return r.id == id }) {
			a.Missing[id] = "cgo has nothing like it"
		}
	}
	slices.Sort(req.Threads)
	p, err := newPin(lanes[:1])
	if err != nil {
		return err
	}
	for _, threads := range req.Threads {
		a.several(&req, lanes[:threads], p)
		if err := p.release(); err != nil {
			return err
		}
	}
	return nil
}

// several measures all rows with a thread for each lane, round by round; a single one on
// the quickest processor of the moment.
func (a *answer) several(req *request, lanes []*lane, p *pin) {
	rounds, batches, inC := req.Rounds, req.Batches, req.Batches
	if len(lanes) > 1 {
		rounds, batches, inC = req.ScaleRounds, req.ScaleBatches, req.ScaleBatchesC
	}
	var all []*samples
	for _, r := range rows {
		batch, ok := batches[r.id]
		if _, missing := a.Missing[r.id]; !ok || missing {
			continue
		}
		s, err := newSamples(r, lanes, batch, inC[r.id])
		if err != nil {
			a.fail(r.id, len(lanes), err)
			continue
		}
		all = append(all, s)
	}
	for i := range rounds {
		if len(lanes) == 1 && i%pinnedRounds == 0 {
			p.toQuickest()
		}
		all = slices.DeleteFunc(all, func(s *samples) bool {
			err := s.take(i%2 == 1)
			if err != nil {
				a.fail(s.row.id, len(lanes), err)
			}
			return err != nil
		})
	}
	for _, s := range all {
		a.Rows = append(a.Rows, measured{Row: s.row.id, Threads: len(lanes), Note: s.row.note, Time: s.time, C: s.c})
	}
}

func (a *answer) fail(id string, threads int, err error) {
	if threads > 1 {
		err = fmt.Errorf("with %d threads: %w", threads, err)
	}
	a.Missing[id] = err.Error()
}
