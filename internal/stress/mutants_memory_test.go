package stress_test

// memoryMutants are mistakes in memory, captures, waits on the host and the loader.
var memoryMutants = []mutant{
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
