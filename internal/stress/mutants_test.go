package stress_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// mutant is a mistake in a file, that breaks an invariant and that a test must find.
type mutant struct {
	invariant string
	file      string // below the module's root
	old, new  string
	pkg, run  string // of the tests that find it
}

const (
	refsTests   = "./internal/refs"
	nativeTests = "./internal/native"
	waitTests   = "./internal/wait"
	stressTests = "./internal/stress"
)

var mutants = []mutant{
	// Counts and gates.
	{
		"the last of those who close and release destroys", "internal/refs/count.go",
		"return c.word.Add(^uint64(0)) == closed }",
		"c.word.Add(^uint64(0)); return false }",
		refsTests, "TestCount$",
	}, {
		"memory is not freed while calls use it", "internal/refs/count.go",
		"return w&closed == 0, w == 0",
		"return w&closed == 0, w&closed == 0",
		stressTests, "TestHeldPairs/simulated/copy_.*close_the_memory",
	}, {
		"nobody acquires what is closed", "internal/refs/count.go",
		"if w&closed != 0 {\n\t\t\treturn false",
		"if w == closed {\n\t\t\treturn false",
		refsTests, "TestCount$",
	}, {
		"a halt waits for the calls under way", "internal/refs/gate.go",
		"for b := (Backoff{}); g.word.Load()&calls != 0; {",
		"for b := (Backoff{}); false; {",
		stressTests, "TestHeldPairs/simulated/record_before.*capture$",
	}, {
		"those who halt wait for each other", "internal/refs/gate.go",
		"g.word.Or(halted)&halted != 0",
		"g.word.Or(halted)&halted != 0 && false",
		refsTests, "TestGateHalts",
	}, {
		"calls see halts", "internal/refs/gate.go",
		"flags    = shut | halted | diverted | full",
		"flags    = shut | diverted | full",
		stressTests, "TestHeldPairs/simulated/capture_before_StreamBeginCapture,_record$",
	}, {
		"calls see diversions", "internal/refs/gate.go",
		"flags    = shut | halted | diverted | full",
		"flags    = shut | halted | full",
		stressTests, "TestHeldTurns/calls_on_a_captured",
	}, {
		"calls see that the stream is closed", "internal/refs/gate.go",
		"flags    = shut | halted | diverted | full",
		"flags    = halted | diverted | full",
		refsTests, "TestGateFlags",
	}, {
		"a stream is not destroyed while it is captured", "internal/refs/gate.go",
		"return w&(shut|halted|diverted|drained|calls) == shut",
		"return w&(shut|halted|drained|calls) == shut",
		stressTests, "TestHeldTurns/a_stream_that_is_closed_while_it_is_captured",
	}, {
		"a stream is not destroyed while it is halted", "internal/refs/gate.go",
		"return w&(shut|halted|diverted|drained|calls) == shut",
		"return w&(shut|diverted|drained|calls) == shut",
		refsTests, "TestGateDrains",
	}, {
		"a stream is not destroyed while calls are under way", "internal/refs/gate.go",
		"return w&(shut|halted|diverted|drained|calls) == shut",
		"return w&(shut|halted|diverted|drained) == shut",
		stressTests, "TestHeldPairs/simulated/wait_before.*close_the_other_stream",
	}, {
		"a stream is destroyed once", "internal/refs/gate.go",
		"&& g.word.CompareAndSwap(w, w|drained)",
		"&& g.word.CompareAndSwap(w, w)",
		refsTests, "TestGateDrains",
	}, {
		"the last call out destroys", "internal/refs/gate.go",
		"return w&(shut|calls) == shut && g.drain()",
		"return false && w > 0",
		refsTests, "TestGateDrains",
	}, {
		"records are numbered", "internal/refs/gate.go",
		"g.word.Add(1 + aRecord)",
		"g.word.Add(1)",
		refsTests, "TestGateNumbers",
	}, {
		"numbers that are used up are told from others", "internal/native/stream_call.go",
		"s.origin.CompareAndSwap(origin, uint64(s.Dev.Driver.places.renew()))",
		"_ = origin",
		nativeTests, "TestRenumber",
	},
	// Marks.
	{
		"a mark is frozen before the new one is recorded", "internal/native/event.go",
		"if was := old.state.Or(frozen); k == nil",
		"if was := old.state.Load(); k == nil",
		stressTests, "TestHeldTurns/a_record_while",
	}, {
		"who has recorded a mark looks whether it was frozen", "internal/native/event.go",
		"if r != driver.Success || m.state.Load()&frozen != 0 {",
		"if r != driver.Success {",
		stressTests, "TestHeldTurns/a_record_of_a_mark",
	}, {
		"a mark that is waited for is not recorded again", "internal/native/event.go",
		"m.on != s || m.state.Load() != 0 {",
		"m.on != s || m.flagged() {",
		stressTests, "TestHeldTurns/a_wait_on_the_host_keeps_to",
	}, {
		"a mark is recorded again on its own stream only", "internal/native/event.go",
		"m == nil || m.on != s || m.state",
		"m == nil || m.state",
		stressTests, "TestHeldTurns/a_join_of_a_mark",
	}, {
		"who has waited for a mark looks whether it is the event's", "internal/native/event.go",
		"if r != driver.Success || e.mark.Load() != m || m.flagged() {",
		"if r != driver.Success {",
		stressTests, "TestHeldTurns/a_wait_for_a_mark",
	}, {
		"who has waited for a mark looks whether others have it", "internal/native/event.go",
		"if r != driver.Success || e.mark.Load() != m || m.flagged() {",
		"if r != driver.Success || e.mark.Load() != m {",
		stressTests, "TestHeldTurns/a_join_of_an_event_that_others",
	}, {
		"a join counts only if the mark is still the event's", "internal/native/event.go",
		"\tif r != driver.Success || e.mark.Load() != m || m.flagged() {",
		"\ts.joined.note(p)\n\tif r != driver.Success || e.mark.Load() != m || m.flagged() {",
		stressTests, "TestHeldTurns/a_join_of_a_mark",
	}, {
		"a join is of the record before the wait", "internal/native/event.go",
		"\tp := place(m.first.Load())\n\tr := s.work.StreamWaitEvent(s.Native, m.event, 0)",
		"\tr := s.work.StreamWaitEvent(s.Native, m.event, 0)\n\tp := place(m.first.Load())",
		stressTests, "TestHeldTurns/a_join_of_an_event_that_is_recorded",
	}, {
		"who has asked for a mark looks whether it is the event's", "internal/native/event.go",
		"if e.mark.Load() != m || r != driver.Success && r != driver.ErrorNotReady {",
		"if r != driver.Success && r != driver.ErrorNotReady {",
		stressTests, "TestHeldTurns/a_query",
	}, {
		"who has measured marks looks whether they are the events'", "internal/native/elapsed.go",
		"if e.mark.Load() != from || end.mark.Load() != to {",
		"if false {",
		stressTests, "TestHeldTurns/elapsed",
	}, {
		"questions are asked in relaxed capture mode", "internal/native/event.go",
		"r := m.dev.mustOpen().Quiet.EventQuery(m.event)",
		"r := m.dev.mustOpen().Work.EventQuery(m.event)",
		stressTests, "TestHeldTurns/a_question_beside",
	}, {
		"a native event does not go back while somebody waits for it", "internal/native/mark.go",
		"if m.state.CompareAndSwap(dead, dead|returned) {",
		"if m.state.Or(returned)&returned == 0 {",
		stressTests, "TestHeldTurns/a_wait_on_the_host_keeps_the",
	}, {
		"a native event does not go back while calls are under way", "internal/native/event_pool.go",
		"quiet := m.quiet(own)\n\tp.mu.Lock()",
		"quiet := true\n\tp.mu.Lock()",
		stressTests, "TestHeldTurns/a_record_that_a_close",
	}, {
		"a native event leaves the limbo when its stream is quiet", "internal/native/event_pool.go",
		"quiet := m.quiet(own)\n\t\tif quiet {",
		"quiet := true\n\t\tif quiet {",
		stressTests, "TestHeldTurns/a_record_that_a_close",
	}, {
		"a native event that has left the limbo is used again", "internal/native/event_pool.go",
		"if quiet {\n\t\t\tp.keep(m.n)\n\t\t}",
		"",
		stressTests, "TestHeldTurns/a_record_that_a_close",
	}, {
		"a native event goes back with its last wait", "internal/native/mark.go",
		"== dead {\n\t\tm.giveBack(nil)",
		"== dead {\n\t\t_ = m",
		stressTests, "TestHeldTurns/the_last_wait",
	}, {
		"a record does not open a closed event again", "internal/native/event.go",
		"if e.mark.CompareAndSwap(old, m) {",
		"if e.mark.Swap(m); true {",
		stressTests, "TestHeldTurns/a_new_mark_that_a_close",
	}, {
		"closing an event ends its waits", "internal/native/event.go",
		"e.End(&m.dev.Poller)",
		"_ = e.End",
		stressTests, "TestHeldTurns/closing_ends",
	}, {
		"closing a stream ends its waits", "internal/native/stream.go",
		"s.End(&s.Dev.Poller)",
		"_ = s.End",
		stressTests, "TestHeldTurns/closing_a_stream",
	}, {
		"who records beside others does not know the last number", "internal/native/mark.go",
		"if w.Alone() && s.gate.Quiet(1) {",
		"if true {",
		nativeTests, "TestOverlappingRecords",
	}, {
		"a mark has no place while calls are under way", "internal/native/mark.go",
		"|| state&replaced == 0 && !m.on.gate.Quiet(0) {",
		"{",
		nativeTests, "TestOverlappingRecords",
	}, {
		"a record's number is drawn before it", "internal/native/mark.go",
		"s.placeOf(w.Number())",
		"s.place()",
		stressTests, "TestHeldTurns/a_record_that_a_use",
	}, {
		"a WaitStream's number is drawn before it", "internal/native/wait_stream.go",
		"p := other.placeOf(v.Number())",
		"p := other.place() + 1",
		stressTests, "TestHeldTurns/a_wait_for_a_stream",
	},
	{
		"a stream that joins a capture of others has no places", "internal/native/wait_stream.go",
		"p.serial() == 0 {\n\t\t\ts.follow()",
		"false {\n\t\t\ts.follow()",
		nativeTests, "ForeignCaptures",
	}, {
		"numbers that begin anew come after the others", "internal/native/stream_call.go",
		"s.epoch += numbers + 1",
		"s.epoch += 0",
		nativeTests, "TestWaitsAcrossRenumber",
	},
	// Memory.
	{
		"memory is pending until it was freed", "internal/native/frees.go",
		"err = f.m.giveBack() // without f.mu: it may call the user, see AfterFree\n\tf.m.Dev.frees.remove(f)",
		"f.m.Dev.frees.remove(f)\n\terr = f.m.giveBack()",
		nativeTests, "TestOneFreeOfAHomeAtATime",
	}, {
		"a use without an event counts", "internal/native/memory.go",
		"\tu.mark = nil\n\tif err == nil {",
		"\tif err == nil {",
		nativeTests, "TestExternalUseWithoutAnEvent",
	}, {
		"a flush that another wait has taken counts", "internal/native/wait.go",
		"if !f.due.Load() && f.taken.Load() == 0 {",
		"if !f.due.Load() {",
		nativeTests, "TestFlushThatAnotherWaitHasTaken",
	}, {
		"a use is noted after it was enqueued", "internal/native/work.go",
		"\tr := s.work.MemcpyAsync(toAt, fromAt, bytes, s.Native)\n\tto.used(s)\n\tfrom.used(s)\n",
		"\tto.used(s)\n\tfrom.used(s)\n\tr := s.work.MemcpyAsync(toAt, fromAt, bytes, s.Native)\n",
		stressTests, "TestHeldTurns/a_copy",
	}, {
		"a fill notes its use", "internal/native/work.go",
		"\tdefault:\n\t\tm.used(s)\n",
		"\tdefault:\n\t\t_ = m\n",
		stressTests, "TestHeldTurns/a_fill",
	}, {
		"a launch notes its uses", "internal/native/work.go",
		"\t\t\tx.used(s)\n",
		"\t\t\t_ = x\n",
		stressTests, "TestHeldTurns/a_launch",
	}, {
		"a graph's launch notes its uses", "internal/native/graph.go",
		"\t\t\t\tm.used(s)\n",
		"\t\t\t\t_ = m\n",
		stressTests, "TestHeldTurns/a_use_of_a_closed_graph",
	}, {
		"a graph keeps what it uses", "internal/native/graph.go",
		"if _, ok := h.memory[m]; !ok && m.AcquireUsed() {",
		"if _, ok := h.memory[m]; !ok && false {",
		stressTests, "TestHeldTurns/a_use_of_a_closed_graph",
	}, {
		"a graph keeps its modules", "internal/native/graph.go",
		"if _, ok := h.modules[m]; !ok && m.AcquireUsed() {",
		"if _, ok := h.modules[m]; !ok && false {",
		stressTests, "TestHeldTurns/a_module",
	}, {
		"memory forgets a closed stream when its use is done", "internal/native/memory.go",
		"return u.s.quiet.StreamQuery(u.s.Native) == driver.Success",
		"return true || u.s.quiet.StreamQuery(u.s.Native) == driver.Success",
		stressTests, "TestHeldTurns/a_closed_stream_whose",
	}, {
		"copies are of one length", "copy.go",
		"|| bytes != has {",
		"|| bytes < has {",
		stressTests, "TestHeldTurns/copies",
	}, {
		"a join covers what came before it", "internal/native/place.go",
		"joined.serial() == p.serial() && joined.number() > p.number()",
		"joined.serial() == p.serial()",
		stressTests, "TestHeldTurns/a_use_after",
	}, {
		"a join covers uses of its own stream", "internal/native/place.go",
		"joined.serial() == p.serial() && joined.number()",
		"joined.number()",
		nativeTests, "TestJoins",
	}, {
		"memory is freed when its uses are done", "internal/native/memory.go",
		"f.users = append(f.users, u)",
		"u.release()",
		stressTests, "TestHeldTurns/a_(copy|fill|launch)",
	}, {
		"a use that was joined costs nothing", "internal/native/memory.go",
		"if u.mark == nil && m.home != nil && m.home.joined.after(place(u.place.Load())) {",
		"if false {",
		stressTests, "TestHeldTurns/a_use_that",
	}, {
		"places only grow", "internal/native/memory.go",
		"if v.serial() == p.serial() && v >= p || u.place",
		"if u.place",
		nativeTests, "TestPlacesGrow",
	}, {
		"memory holds the streams that use it", "internal/native/memory.go",
		"\ts.hold()\n",
		"",
		stressTests, "TestHeldTurns/a_closed_stream",
	}, {
		"memory holds its home", "internal/native/pool.go",
		"m.home.hold()",
		"_ = m.home",
		stressTests, "TestHeldTurns/a_home",
	}, {
		"memory is not freed in a capture of its home", "internal/native/stream_call.go",
		"\t\tcase w.Diverted():\n",
		"\t\tcase false:\n",
		stressTests, "TestHeldTurns/memory_that",
	}, {
		"records of a stream that others know are no places", "internal/native/stream.go",
		"\tif s.kind != kindDefault {\n\t\ts.origin.Store(0)\n",
		"\tif s.kind != kindDefault {\n",
		nativeTests, "TestNoPlace",
	},
	// Captures.
	{
		"the stream that begins a capture is diverted", "internal/native/capture.go",
		"\ts.gate.Divert()\n",
		"",
		nativeTests, "TestCapturesDivert",
	}, {
		"the default stream is diverted while a blocking one is captured", "internal/native/capture.go",
		"\t\ts.Dev.Default.gate.Divert()\n",
		"",
		stressTests, "TestHeldTurns/the_default",
	}, {
		"the end of a capture restores the gates", "internal/native/capture.go",
		"if s.gate.Restore() {",
		"if false {",
		nativeTests, "TestCapturesDivert",
	}, {
		"a capture ends while no call is on its streams", "internal/native/capture.go",
		"native, r := s.work.StreamEndCapture(s.Native)",
		"k.mu.Unlock()\n\tnative, r := s.work.StreamEndCapture(s.Native)\n\tk.mu.Lock()",
		stressTests, "TestHeldPairs/simulated/capture_before_StreamEndCapture,_record$",
	}, {
		"a call that has waited finds that the capture is over", "internal/native/capture.go",
		"\tif k.ended {\n\t\tk.mu.Unlock()",
		"\tif false {\n\t\tk.mu.Unlock()",
		stressTests, "TestHeldTurns/a_call_that_waits_for_the_end",
	}, {
		"calls on captured streams take turns", "internal/native/capture.go",
		"type Capture struct {\n\tmu      sync.Mutex\n",
		"type none struct{}\n\nfunc (none) Lock() {}\n\nfunc (none) Unlock() {}\n\ntype Capture struct {\n\tmu      none\n",
		stressTests, "TestHeldTurns/calls_on_a_captured",
	}, {
		"a record in a capture takes an event that nobody had", "internal/native/event_pool.go",
		"\tif k != nil {\n\t\treturn p.make(d, flags)\n\t}\n",
		"",
		stressTests, "TestHeldTurns/a_question_about",
	}, {
		"a capture and a wait for the device do not meet", "internal/native/capture.go",
		"\tc.mu.Lock() // before s is halted: the driver may hold up recordAll\n\tc.streams.Add(1)\n\tc.mu.Unlock()\n",
		"\tc.streams.Add(1)\n",
		stressTests, "TestHeldPairs/simulated/wait_for_the_device_before_CtxRecordEvent,_capture",
	},
	{
		"a capture of a blocking stream halts the default stream", "internal/native/capture.go",
		"\t\ts.Dev.Default.gate.Halt()\n\t\tdefer s.Dev.Default.resume()\n",
		"",
		stressTests, "TestHeldTurns/a_call_on_the_default",
	}, {
		"nobody halts a stream while in a call", "internal/native/event.go",
		"\t\t\treturn m.capture.join(s, m)",
		"\t\t\ts.gate.Enter()\n\t\t\tdefer s.leave()\n\t\t\treturn m.capture.join(s, m)",
		stressTests, "TestHeldTurns/all_goes_on",
	},
	// Waits on the host.
	{
		"only a wait behind kernels or frees makes the driver's own", "internal/native/wait.go",
		"} else if s.flushes.take() {",
		"} else if s.flushes.taken.Add(1); true {",
		stressTests, "TestHeldTurns/the_driver's_own_waits",
	}, {
		"a wait behind kernels makes the driver's own", "internal/native/work.go",
		"\t\ts.flushes.later()\n\t\ts.leave()",
		"\t\ts.leave()",
		stressTests, "TestHeldTurns/the_driver's_own_waits",
	}, {
		"a wait behind frees makes the driver's own", "internal/native/memory.go",
		"\t\tm.home.flushes.later()\n",
		"",
		stressTests, "TestHeldTurns/the_driver's_own_waits",
	}, {
		"a wait that is given up leaves it to the next", "internal/native/wait.go",
		"\t\tp.flush.left()\n",
		"\t\tp.flush.made()\n",
		stressTests, "TestHeldTurns/the_driver's_own_waits",
	}, {
		"an answer counts for those who certainly came before", "internal/wait/loop.go",
		"q.takeBefore(e.first)",
		"q.takeBefore(e.last + 1)",
		waitTests, "TestOverlappingPlaces|TestStorm",
	}, {
		"those who may be as old as the oldest are asked too", "internal/wait/queue.go",
		"q.root.from(q.root.oldest().last, func(e *entry) {",
		"q.root.from(0, func(e *entry) {})\n\tfunc(f func(e *entry)) { f(q.root.oldest()) }(func(e *entry) {",
		waitTests, "TestOverlappingPlaces",
	}, {
		"only the oldest of a stream is asked", "internal/wait/queue.go",
		"q.root.from(q.root.oldest().last, func",
		"q.root.from(1<<63, func",
		waitTests, "TestOnlyTheOldestIsAsked",
	}, {
		"a stream is asked again at once only so often", "internal/wait/loop.go",
		"full := len(again) == 0 || quick == mostQuickRounds",
		"full := len(again) == 0",
		waitTests, "TestNoQueueStarvesOthers",
	}, {
		"an answer about what others record counts for earlier waits", "internal/wait/loop.go",
		"if w.since == l.rounds {",
		"if false {",
		waitTests, "TestRecordedAgain|TestPlaceNotKnown",
	}, {
		"a wait of who has ended is not parked", "internal/wait/wait.go",
		"if o.ended.Load() {\n\t\t\treturn false",
		"if false {\n\t\t\treturn false",
		waitTests, "TestEndBeforeParking",
	}, {
		"what is done when its context ends is done", "internal/wait/several.go",
		"if i, err := s.pollLast(ps, waiters); err != ErrCancelled {",
		"if i, err := s.pollLast(ps, waiters); false {",
		waitTests, "TestDoneWhenCancelled",
	},
	// The library.
	{
		"a failure to load the system's library is not kept", "loader/library.go",
		"\t\tif err != nil {\n\t\t\treturn nil, err\n\t\t}\n\t\tsystem.library = l\n",
		"\t\tif err != nil {\n\t\t\tl = &Library{}\n\t\t}\n\t\tsystem.library = l\n\t\tif err != nil {\n\t\t\treturn nil, err\n\t\t}\n",
		"./loader", "TestSystemFailureIsNotKept",
	},
}

const root = "../.."

// Each row still fits the code: what it replaces is there once.
func TestMutantsFit(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range mutants {
		text, err := os.ReadFile(filepath.Join(root, m.file))
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(text), m.old), "%q in %s, of %q", m.old, m.file, m.invariant)
		require.False(t, seen[m.invariant], m.invariant)
		seen[m.invariant] = true
		_, err = regexp.Compile(m.run)
		require.NoError(t, err)
	}
}

// Each mutant is found by the tests that say so. It takes minutes, so it is for
// PURECUDA_MUTANTS=1 only, or for the mutants that match another value.
func TestMutants(t *testing.T) {
	which := os.Getenv("PURECUDA_MUTANTS")
	if which == "" {
		t.Skip("PURECUDA_MUTANTS is not set")
	}
	if which == "1" {
		which = "."
	}
	chosen, err := regexp.Compile(which)
	require.NoError(t, err)
	for _, m := range mutants {
		if chosen.MatchString(m.invariant) {
			t.Run(m.invariant, m.mustBeFound)
		}
	}
}

func (m mutant) mustBeFound(t *testing.T) {
	file, err := filepath.Abs(filepath.Join(root, m.file))
	require.NoError(t, err)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), m.old))
	mutated, overlay := filepath.Join(t.TempDir(), "mutated.go"), filepath.Join(t.TempDir(), "overlay.json")
	require.NoError(t, os.WriteFile(mutated, []byte(strings.Replace(string(text), m.old, m.new, 1)), 0o600))
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: mutated}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, replace, 0o600))

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-vet=off", "-failfast", "-timeout=60s", "-overlay="+overlay, "-run="+m.run, m.pkg)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "PURECUDA_TEST_PATIENCE=4")
	began := time.Now()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		t.Fatalf("survives\n%s", out)
	case !errors.As(err, &exit) || strings.Contains(string(out), "[build failed]") || strings.Contains(string(out), "[setup failed]"):
		t.Fatalf("%v\n%s", err, out)
	}
	found := regexp.MustCompile(`(?m)^ *--- FAIL: .*|^panic: .*|^fatal error: .*`).FindAllString(string(out), -1)
	if len(found) == 0 {
		t.Fatalf("no test has failed\n%s", out)
	}
	t.Logf("found in %.1f s: %s", time.Since(began).Seconds(), strings.TrimSpace(found[len(found)-1]))
}
