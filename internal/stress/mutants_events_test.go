package stress_test

// eventMutants are mistakes in counts, gates and marks.
var eventMutants = []mutant{
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
}
