"""What the peers share: the request, the C loop beside them, the rounds and the answer.

A peer is a library that does the rows of the benchmark in its own way, in a process of its
own: `python3 peer_NAME.py REQUEST.json`. It prints one JSON document.
"""

import ctypes
import functools
import gc
import json
import os
import sys
import threading
import time
from itertools import repeat

# What the libraries print goes to the error output: only the answer belongs on this one.
_answer = os.dup(1)
os.dup2(2, 1)

now = time.perf_counter_ns


def absent(name, why):
    """Answers that the library cannot be measured, and ends the process."""
    _print({"name": name, "version": "", "absent": _text(why), "missing": {}, "rows": []})
    sys.exit(0)


def main(name, version, lane, rows, notes, missing):
    """Measures and answers.

    lane is the library's subclass of Lane. rows has for each row a function that takes a lane
    and returns a function that does the operation n times. notes says in what a row differs,
    missing why a row is not in rows.
    """
    with open(sys.argv[1]) as f:
        request = json.load(f)
    try:
        driver = Driver(request)
        loop = Loop(request["library"], driver)
        # All streams are made before anything else: PyTorch's come from a pool, in which
        # they differ only as long as nothing else takes any.
        lanes = [lane(driver) for _ in range(max(request["threads"]))]
        lanes[0].enter()
    except Exception as e:
        absent(name, e)
    missing = {row: missing.get(row, "not in the library") for row in request["batches"] if row not in rows}
    # What is there will stay: each collection looks at what the samples have left, and only there.
    gc.disable()
    gc.freeze()

    def several(threads, rounds):
        samples = []
        theirs, in_c = ("batches",) * 2 if threads == 1 else ("scale_batches", "scale_batches_c")
        for row, n in request[theirs].items():
            if row in rows and row not in missing:
                try:
                    samples.append(Samples(row, rows[row], lanes[:threads], loop, n, request[in_c][row]))
                except Exception as e:
                    missing[row] = why(threads, e)
        for r in range(rounds):
            # Not before: the threads that the libraries make at first use would be bound, too.
            if threads == 1 and r % PINNED_ROUNDS == 0:
                pin.to_quickest()
            for s in list(samples):
                try:
                    s.take(c_first=r % 2 == 1)
                except Exception as e:
                    samples.remove(s)
                    missing[s.row] = why(threads, e)
            gc.collect()
        return [
            {"row": s.row, "threads": threads, "note": notes.get(s.row, ""), "time": s.time, "c": s.c} for s in samples
        ]

    measured = []
    pin = Pin(loop, lanes[0])
    for threads in sorted(request["threads"]):
        measured += several(threads, request["rounds" if threads == 1 else "scale_rounds"])
        pin.release()
    _print({"name": name, "version": version, "absent": "", "missing": missing, "rows": measured})
    # The libraries' ways to take themselves down are not what is tested here.
    os._exit(0)


def why(threads, e):
    return _text(e) if threads == 1 else f"with {threads} threads: {_text(e)}"


def _text(e):
    return e if isinstance(e, str) else f"{type(e).__name__}: {e}"


def _print(document):
    with os.fdopen(_answer, "w") as f:
        json.dump(document, f)
        f.write("\n")


class Driver:
    """The driver's functions, by ctypes: for the C loop, and for what a library does not have."""

    def __init__(self, request):
        self.lib = ctypes.CDLL(request["libcuda"])
        self.call("cuInit", 0)
        self.context = self.get("cuDevicePrimaryCtxRetain", 0)
        self.call("cuCtxSetCurrent", self.context)
        # Else each synchronization gives the memory of the C loop's allocations back.
        pool, keep = self.get("cuDeviceGetMemPool", 0), ctypes.c_uint64(2**64 - 1)
        self.call("cuMemPoolSetAttribute", pool, 4, ctypes.byref(keep))
        self.ptx, self.kernel_name = request["kernel"].encode(), request["kernel_name"]

    def address(self, symbol):
        return ctypes.cast(getattr(self.lib, symbol), ctypes.c_void_p).value

    def call(self, symbol, *args):
        r = getattr(self.lib, symbol)(*(ctypes.c_uint64(a) if isinstance(a, int) else a for a in args))
        if r != 0:
            raise RuntimeError(f"{symbol} answered {r}")

    def get(self, symbol, *args):
        """Returns what a function writes through its first argument."""
        out = ctypes.c_uint64()
        self.call(symbol, ctypes.byref(out), *args)
        return out.value

    @functools.cached_property
    def kernel(self):
        return self.get("cuModuleGetFunction", self.get("cuModuleLoadData", self.ptx), self.kernel_name.encode())

    def launch(self, stream):
        self.call("cuLaunchKernel", self.kernel, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0)


class Lane:
    """The objects that one thread works on.

    A subclass has the library's streams s and other, made with it, and what the rows below
    ask for: events e, t, start and end, all recorded, and memory(size).
    """

    def __init__(self, driver):
        self.driver = driver
        self.word = ctypes.c_uint64()
        self.out = ctypes.addressof(self.word)

    def enter(self):
        """Is called on the thread that works with the lane, before it does."""

    def native(self, x):
        """Returns the driver's handle or the address of an object of the library."""
        return int(x)

    def __getitem__(self, name):
        return self.native(getattr(self, name))

    @functools.cached_property
    def spare(self):
        return self.driver.get("cuEventCreate", 2)

    @functools.cached_property
    def c_graph(self):
        s = self["s"]
        self.driver.call("cuStreamBeginCapture_v2", s, 2)
        self.driver.launch(s)
        return self.driver.get("cuGraphInstantiateWithFlags", self.end_capture(s), 0)

    def end_capture(self, s):
        graph = ctypes.c_uint64()
        self.driver.call("cuStreamEndCapture", s, ctypes.byref(graph))
        return graph.value


class Load(int):
    """The address of a word that is loaded when the call is made."""


def _copy(l, size):
    dst, host = l.memory(size)
    return [("cuMemcpyAsync", l.native(dst), l.native(host), size, l["s"])]


def _on_default(l, *call):
    return [("cuCtxPushCurrent_v2", l.driver.context), call, ("cuCtxPopCurrent_v2", l.out)]


# What a row is in C: the calls of one operation.
CALLS = {
    "transition": lambda l: [("cuDriverGetVersion", l.out)],
    "record": lambda l: [("cuEventRecord", l["e"], l["s"])],
    "record-timing": lambda l: [("cuEventRecord", l["t"], l["s"])],
    "query": lambda l: [("cuEventQuery", l["e"])],
    "wait": lambda l: [("cuStreamWaitEvent", l["other"], l["e"], 0)],
    "wait-stream": lambda l: [("cuEventRecord", l["spare"], l["s"]), ("cuStreamWaitEvent", l["other"], l["spare"], 0)],
    "stream-query": lambda l: [("cuStreamQuery", l["s"])],
    "stream-sync": lambda l: [("cuStreamSynchronize", l["s"])],
    "elapsed": lambda l: [("cuEventElapsedTime_v2", l.out, l["start"], l["end"])],
    "event-life": lambda l: [
        ("cuEventCreate", l.out, 2),
        ("cuEventRecord", Load(l.out), l["s"]),
        ("cuEventDestroy_v2", Load(l.out)),
    ],
    "stream-life": lambda l: [("cuStreamCreateWithPriority", l.out, 1, 0), ("cuStreamDestroy_v2", Load(l.out))],
    "current-stream": lambda l: [],
    "record-default": lambda l: _on_default(l, "cuEventRecord", l["e"], 0),
    "wait-default": lambda l: _on_default(l, "cuStreamWaitEvent", 0, l["e"], 0),
    "query-default": lambda l: _on_default(l, "cuStreamQuery", 0),
    "wait-stream-default": lambda l: [("cuEventRecord", l["spare"], l["s"])]
    + _on_default(l, "cuStreamWaitEvent", 0, l["spare"], 0),
    "launch": lambda l: [("cuLaunchKernel", l.driver.kernel, 1, 1, 1, 1, 1, 1, 0, l["s"], 0, 0)],
    "copy-4": lambda l: _copy(l, 4),
    "copy-64k": lambda l: _copy(l, 65536),
    "alloc-free": lambda l: [("cuMemAllocAsync", l.out, 65536, l["s"]), ("cuMemFreeAsync", Load(l.out), l["s"])],
    "round-trip": lambda l: [("cuEventRecord", l["e"], l["s"]), ("cuEventSynchronize", l["e"])],
    "graph": lambda l: [("cuGraphLaunch", l["c_graph"], l["s"])],
}


class Call(ctypes.Structure):
    _fields_ = [
        ("fn", ctypes.c_void_p),
        ("n", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        ("arg", ctypes.c_uint64 * 11),
    ]


class Loop:
    """The C loop, in this process."""

    def __init__(self, library, driver):
        self.driver = driver
        lib = ctypes.CDLL(library)
        self.one, self.threads = lib.purecuda_loop, lib.purecuda_threads
        self.one.restype = self.threads.restype = ctypes.c_int64
        self.one.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int64]
        self.threads.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int64] + [ctypes.c_void_p] * 2
        self.set_current = driver.address("cuCtxSetCurrent")

    def calls(self, sequence):
        """Returns the structs for a sequence of (symbol, argument...)."""
        calls = (Call * len(sequence))()
        for c, (symbol, *args) in zip(calls, sequence):
            c.fn, c.n = self.driver.address(symbol), len(args)
            for i, a in enumerate(args):
                c.arg[i] = a
                c.load |= isinstance(a, Load) << i
        return calls

    def run(self, calls, threads, n):
        """Returns the nanoseconds that n operations of each thread take."""
        k = len(calls) // threads
        if threads == 1:
            ns = self.one(calls, k, n)
        else:
            ns = self.threads(calls, k, threads, n, self.set_current, self.driver.context)
        if ns < 0:
            raise RuntimeError(f"the C loop failed with {-ns}")
        return ns


# After so many rounds another processor may be the quickest.
PINNED_ROUNDS = 50


class Pin:
    """Binds the calling thread to the processor that does the row "record" in C in the least time."""

    def __init__(self, loop, lane):
        self.loop, self.lane, self.allowed = loop, lane, os.sched_getaffinity(0)
        self.calls = None

    def to_quickest(self):
        try:
            self.calls = self.calls or self.loop.calls(CALLS["record"](self.lane))
            os.sched_setaffinity(0, {min(sorted(self.allowed), key=self._least)})
        except Exception as e:
            self.release()
            print("the measuring thread was not bound to a processor:", _text(e), file=sys.stderr)

    def release(self):
        os.sched_setaffinity(0, self.allowed)

    def _least(self, processor):
        os.sched_setaffinity(0, {processor})
        return min(self._sample() for _ in range(5))

    def _sample(self):
        ns = self.loop.run(self.calls, 1, 1000)
        self.loop.driver.call("cuCtxSynchronize")
        return ns


class Samples:
    """The samples of a row: a thread for each lane."""

    def __init__(self, row, prepare, lanes, loop, n, n_c):
        self.row, self.lanes, self.loop, self.n, self.n_c = row, lanes, loop, n, n_c
        self.time, self.c = [], []
        self.loops = [prepare(l) for l in lanes]
        self.calls = loop.calls([c for l in lanes for c in CALLS[row](l)])
        # Once before it counts: what is lazy is made, and what fails does so here.
        self._theirs(2)
        self._in_c(2)

    def take(self, c_first):
        if c_first:
            c, t = self._in_c(self.n_c), self._theirs(self.n)
        else:
            t, c = self._theirs(self.n), self._in_c(self.n_c)
        self.time.append(t)
        if len(self.calls) != 0:
            self.c.append(c)

    def _in_c(self, n):
        if len(self.calls) == 0:
            return 0
        ns = self.loop.run(self.calls, len(self.lanes), n)
        self.loop.driver.call("cuCtxSynchronize")
        return ns / n

    def _theirs(self, n):
        if len(self.lanes) == 1:
            begin = now()
            self.loops[0](n)
            ns = now() - begin
        else:
            ns = _together(self.lanes, self.loops, n)
        self.loop.driver.call("cuCtxSynchronize")
        return ns / n


def _together(lanes, loops, n):
    """Runs each loop on a thread. Returns the time from the first one's begin to the last one's end."""
    barrier = threading.Barrier(len(loops))
    begins, ends, errors = [], [], []

    def work(lane, run):
        try:
            lane.enter()
            run(1)
            barrier.wait()
            begins.append(now())
            run(n)
            ends.append(now())
        except threading.BrokenBarrierError:
            pass  # another thread says why
        except Exception as e:
            errors.append(e)
            barrier.abort()

    threads = [threading.Thread(target=work, args=a) for a in zip(lanes, loops)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]
    return max(ends) - min(begins)


def loop(statement, **names):
    """Returns a function that does a statement n times, written as by hand: what it names is local there."""
    source = f"""
def run(n, repeat=repeat, {", ".join(f"{x}={x}" for x in names)}):
    for _ in repeat(None, n):
        {statement}
"""
    scope = {"repeat": repeat} | names
    exec(source, scope)
    return scope["run"]
