package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// report is what the demo has to tell.
type report struct {
	*chosen
	batches int
	size    size
	streams int
	rows    []row
}

// row is the sum of a stage over all batches.
type row struct {
	Stream string  `json:"stream"`
	Device int     `json:"device"`
	Stage  string  `json:"stage"`
	Bytes  uint64  `json:"bytes"`
	MS     float64 `json:"ms"`
	GBps   float64 `json:"gb_per_s"` // 1e9 bytes; 0 if it took no measurable time
	took   time.Duration
}

func (r *row) ms() float64 { return float64(r.took) / float64(time.Millisecond) }

func (r *row) rate() float64 {
	if r.took <= 0 {
		return 0
	}
	return float64(r.Bytes) / float64(r.took.Nanoseconds())
}

// table writes the rows. The stages of different streams overlap in time, so
// their times do not add up to the last row's.
func (r *report) table(w io.Writer) {
	if len(r.rows) == 0 {
		return
	}
	label := r.mark()
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "stream\tdevice\tstage\tbytes\tms%s\tGB/s%s\n", label, label)
	for _, s := range r.rows {
		rate := "-"
		if n := s.rate(); n > 0 {
			rate = fmt.Sprintf("%.1f", n)
		}
		fmt.Fprintf(tw, "%s\t%d\t%s\t%v\t%.3f\t%s\n", s.Stream, s.Device, s.Stage, size(s.Bytes), s.ms(), rate)
	}
	tw.Flush()
	fmt.Fprintln(w)
	if r.simulated {
		fmt.Fprintln(w, "The times are of a simulation, in which the host does the copying; they say nothing about any GPU.")
	}
}

// verdict says in one line that all was right.
func (r *report) verdict() string {
	devices := 1
	if r.DeviceCount() > 1 {
		devices = 2
	}
	return fmt.Sprintf("ok%s: %s of %v through %s of %s, every byte right, nothing left open",
		r.mark(), count(r.batches, "batch"), r.size, count(r.streams, "stream"), count(devices, "device"))
}

// json writes the report and the failure, if there was one, as a JSON object.
func (r *report) json(w io.Writer, failure error) error {
	out := struct {
		OK        bool   `json:"ok"`
		Error     string `json:"error,omitempty"`
		Simulated bool   `json:"simulated"`
		Driver    string `json:"driver"`
		Library   string `json:"library"`
		CUDA      string `json:"cuda"`
		Devices   int    `json:"devices"`
		Batches   int    `json:"batches"`
		BatchSize uint64 `json:"batch_bytes"`
		Clock     string `json:"clock"`
		Stages    []row  `json:"stages"`
	}{
		OK: failure == nil, Simulated: r.simulated, Driver: r.String(), Library: r.Library(),
		CUDA: version(r.Version()), Devices: r.DeviceCount(), Batches: r.batches, BatchSize: uint64(r.size),
		Clock: "events of the device", Stages: []row{},
	}
	if r.simulated {
		out.Clock = "simulated: says nothing about any GPU"
	}
	if failure != nil {
		out.Error = failure.Error()
	}
	for _, s := range r.rows {
		s.MS, s.GBps = s.ms(), s.rate()
		out.Stages = append(out.Stages, s)
	}
	return writeJSON(w, out)
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
