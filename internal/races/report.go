package races

import (
	"fmt"
	"slices"

	"github.com/purecuda/cuda/internal/callsite"
	"github.com/purecuda/cuda/internal/order"
)

// Task says what an operation is, for a report.
type Task struct {
	What     string
	Stream   fmt.Stringer
	At       callsite.Site
	Launched *callsite.Site // where the graph was launched whose node it is
	Refused  bool           // the driver has refused it, so that it uses nothing
}

// InGraph returns what describes a node of a graph that was launched on s; nil if t is.
func (t *Task) InGraph(s fmt.Stringer, launched *callsite.Site) *Task {
	if t == nil {
		return nil
	}
	return &Task{What: t.What, Stream: s, At: t.At, Launched: launched, Refused: t.Refused}
}

// String names the operation and its line.
func (t *Task) String() string {
	if t.Launched != nil {
		return fmt.Sprintf("%s at %v, of the graph launched at %v,", t.What, t.At, t.Launched)
	}
	return fmt.Sprintf("%s at %v", t.What, t.At)
}

// Reports are the races that were found, each pair of lines once.
type Reports struct {
	all   []string
	raced map[[2]string]bool // the lines of those in all
}

// mostRaces is how many races are kept.
const mostRaces = 100

// All returns the reports, which the caller must not change.
func (r *Reports) All() []string { return r.all }

// Add adds a race between two accesses, by a *Task each, to memory that was made at a site. It
// returns the report, or "" if there is none because the lines are known.
func (r *Reports) Add(made fmt.Stringer, earlier, later order.Access, from, to uint64) string {
	first, second := earlier.By.(*Task), later.By.(*Task)
	if first.Refused || second.Refused {
		return ""
	}
	lines := [2]string{first.At.String(), second.At.String()}
	slices.Sort(lines[:])
	if len(r.all) == mostRaces || r.raced[lines] {
		return ""
	}
	if r.raced == nil {
		r.raced = map[[2]string]bool{}
	}
	r.raced[lines] = true
	does := [...]string{order.Read: "reads", order.Write: "writes", order.Atomic: "atomically changes"}
	report := fmt.Sprintf("race: %v and %v are not ordered; "+
		"add an event that is recorded after one and waited for before the other, or WaitStream\n"+
		"\t%s on %v %s bytes %d to %d of the memory made at %v\n"+
		"\t%s on %v %s them",
		first, second,
		first.What, first.Stream, does[earlier.Kind], from, to-1, made,
		second.What, second.Stream, does[later.Kind])
	r.all = append(r.all, report)
	return report
}
