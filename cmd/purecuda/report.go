package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"
)

// report is what the demo has to tell.
type report struct {
	*chosen
	plan
	streams int
	peer    *peerAccess // nil with one device
	nodes   int         // of the graph
	worst   float64     // how far the worst element of a product is off, in tolerances
	rows    []row       // none if it failed
}

// row is the sum of a stage over all batches. Rates are left out if it took no
// measurable time.
type row struct {
	Stream  string  `json:"stream"`
	Device  int     `json:"device"`
	Stage   string  `json:"stage"`
	Bytes   uint64  `json:"bytes,omitempty"`
	FLOP    uint64  `json:"flop,omitempty"`
	MS      float64 `json:"ms"`
	GBps    float64 `json:"gb_per_s,omitempty"` // 1e9 bytes
	GFLOPps float64 `json:"gflop_per_s,omitempty"`
}

func newRow(st *stage, took time.Duration) row {
	r := row{Stream: st.stream, Device: st.device, Stage: st.name, MS: float64(took) / float64(time.Millisecond)}
	rate := 0.0
	if took > 0 {
		rate = float64(st.amount) / float64(took.Nanoseconds())
	}
	switch st.unit {
	case ofBytes:
		r.Bytes, r.GBps = st.amount, rate
	case ofFLOP:
		r.FLOP, r.GFLOPps = st.amount, rate
	}
	return r
}

func (r *row) amount() string {
	if r.FLOP > 0 {
		return decimal(float64(r.FLOP)) + "FLOP"
	}
	return size(r.Bytes).String()
}

func (r *row) rate() string {
	switch {
	case r.GFLOPps > 0:
		return decimal(r.GFLOPps*1e9) + "FLOP/s"
	case r.GBps > 0:
		return decimal(r.GBps*1e9) + "B/s"
	}
	return "-"
}

// decimal writes n with one decimal at most and the prefix of its size.
func decimal(n float64) string {
	prefixes := []string{"", "k", "M", "G", "T", "P"}
	for n >= 999.95 && len(prefixes) > 1 {
		n, prefixes = n/1000, prefixes[1:]
	}
	return strconv.FormatFloat(n, 'f', 1, 64) + " " + prefixes[0]
}

// print writes all but the verdict, for people.
func (r *report) print(w io.Writer) {
	switch {
	case r.peer == nil:
	case r.peer.bothWays:
		fmt.Fprintln(w, "peer access: devices 0 and 1 reach each other's memory directly")
	default:
		fmt.Fprintf(w, "peer access: none, copies between the devices go through the host (%s)\n", r.peer.why)
	}
	if len(r.rows) == 0 {
		return
	}
	if r.graph {
		fmt.Fprintf(w, "one graph of %s, launched %d times, each checked; the times are of the last launch\n", count(r.nodes, "node"), launches)
	}
	r.table(w)
	fmt.Fprintf(w, "products: each element within %s of a float64 reference, the worst at %.2g of that\n", tolerated, r.worst)
	if r.simulated {
		fmt.Fprintln(w, "The times are of a simulation, in which the host does the work; they say nothing about any GPU.")
	}
}

// table writes the rows. The stages of different streams overlap in time, so
// their times do not add up to the last row's.
func (r *report) table(w io.Writer) {
	label := r.mark()
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "stream\tdevice\tstage\tamount\tms%s\trate%s\n", label, label)
	for _, s := range r.rows {
		fmt.Fprintf(tw, "%s\t%d\t%s\t%s\t%.3f\t%s\n", s.Stream, s.Device, s.Stage, s.amount(), s.MS, s.rate())
	}
	tw.Flush()
	fmt.Fprintln(w)
}

// verdict says in one line that all was right.
func (r *report) verdict() string {
	devices := 1
	if r.peer != nil {
		devices = 2
	}
	return fmt.Sprintf("ok%s: %s of %v and a %d×%d matrix through %s of %s, every byte and every product right, nothing left open",
		r.mark(), count(r.batches, "batch"), r.size, r.n, r.n, count(r.streams, "stream"), count(devices, "device"))
}

// graphFacts is what a graph's run adds to the JSON object.
type graphFacts struct {
	Nodes    int `json:"nodes"`
	Launches int `json:"launches"` // the times are of the last one
}

// json writes the report and the failure, if there was one, as a JSON object.
func (r *report) json(w io.Writer, failure error) error {
	out := struct {
		OK         bool        `json:"ok"`
		Error      string      `json:"error,omitempty"`
		Simulated  bool        `json:"simulated"`
		Driver     string      `json:"driver"`
		Library    string      `json:"library"`
		CUDA       string      `json:"cuda"`
		Devices    int         `json:"devices"`
		PeerAccess *bool       `json:"peer_access,omitempty"` // both ways; absent with one device
		Batches    int         `json:"batches"`
		BatchSize  uint64      `json:"batch_bytes"`
		Matrix     int         `json:"matrix_rows"`
		Tolerance  string      `json:"product_tolerance"`
		Worst      float64     `json:"product_worst"` // in tolerances
		Graph      *graphFacts `json:"graph,omitempty"`
		Clock      string      `json:"clock"`
		Stages     []row       `json:"stages"`
	}{
		OK: failure == nil, Simulated: r.simulated, Driver: r.String(), Library: r.Library(),
		CUDA: version(r.Version()), Devices: r.DeviceCount(), Batches: r.batches, BatchSize: uint64(r.size),
		Matrix: r.n, Tolerance: tolerated, Worst: r.worst,
		Clock: "events of the device", Stages: append([]row{}, r.rows...),
	}
	if r.simulated {
		out.Clock = "simulated: says nothing about any GPU"
	}
	if r.peer != nil {
		out.PeerAccess = &r.peer.bothWays
	}
	if r.graph && len(r.rows) > 0 {
		out.Graph = &graphFacts{r.nodes, launches}
	}
	if failure != nil {
		out.Error = failure.Error()
	}
	return writeJSON(w, out)
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
