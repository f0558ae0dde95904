"""The rows by CuPy."""

import functools

import peer
from peer import loop

try:
    import cupy
    from cupy import cuda
except Exception as e:
    peer.absent("CuPy", e)


class Lane(peer.Lane):
    def __init__(self, driver):
        super().__init__(driver)
        self.s, self.other = cuda.Stream(non_blocking=True), cuda.Stream(non_blocking=True)

    def enter(self):
        self.s.use()

    def native(self, x):
        return x if isinstance(x, int) else x.ptr

    def event(self, **options):
        e = cuda.Event(**options)
        e.record(self.s)
        return e

    e = functools.cached_property(lambda self: self.event(disable_timing=True))
    again = functools.cached_property(lambda self: self.event(disable_timing=True))
    t = functools.cached_property(lambda self: self.event())
    start = functools.cached_property(lambda self: self.event())
    end = functools.cached_property(lambda self: self.event())

    @functools.cache
    def memory(self, size):
        return cuda.alloc(size), cuda.alloc_pinned_memory(size)

    @functools.cached_property
    def function(self):
        from cupy.cuda import function

        module = function.Module()
        module.load(self.driver.ptx)
        return module.get_function(self.driver.kernel_name)

    @functools.cached_property
    def graph(self):
        f = self.function
        self.s.begin_capture()
        f(ONE, ONE, (), 0, self.s)
        return self.s.end_capture()


ONE = (1, 1, 1)
default = cuda.Stream.null


def copy(l, size):
    dst, host = l.memory(size)
    return loop("copy(host, size, s)", copy=dst.copy_from_host_async, host=host.ptr, size=size, s=l.s)


def record_and_wait(l, other):
    return loop("record(s); wait(e)", record=l.again.record, wait=other.wait_event, s=l.s, e=l.again)


ROWS = {
    "transition": lambda l: loop("version()", version=cuda.runtime.driverGetVersion),
    "record": lambda l: loop("record(s)", record=l.e.record, s=l.s),
    "record-timing": lambda l: loop("record(s)", record=l.t.record, s=l.s),
    "query": lambda l: loop("e.done", e=l.e),
    "wait": lambda l: loop("wait(e)", wait=l.other.wait_event, e=l.e),
    "wait-stream": lambda l: record_and_wait(l, l.other),
    "stream-query": lambda l: loop("s.done", s=l.s),
    "stream-sync": lambda l: loop("synchronize()", synchronize=l.s.synchronize),
    "elapsed": lambda l: loop("elapsed(start, end)", elapsed=cuda.get_elapsed_time, start=l.start, end=l.end),
    "event-life": lambda l: loop("e = Event(False, True); e.record(s); del e", Event=cuda.Event, s=l.s),
    "stream-life": lambda l: loop("s = Stream(non_blocking=True); del s", Stream=cuda.Stream),
    "current-stream": lambda l: loop("current()", current=cuda.get_current_stream),
    "record-default": lambda l: loop("record(s)", record=l.e.record, s=default),
    "wait-default": lambda l: loop("wait(e)", wait=default.wait_event, e=l.e),
    "query-default": lambda l: loop("s.done", s=default),
    "wait-stream-default": lambda l: record_and_wait(l, default),
    "launch": lambda l: loop("f(one, one, (), 0, s)", f=l.function, one=ONE, s=l.s),
    "copy-4": lambda l: copy(l, 4),
    "copy-64k": lambda l: copy(l, 65536),
    "alloc-free": lambda l: loop("x = alloc(65536); del x", alloc=cuda.alloc),
    "round-trip": lambda l: loop("record(s); synchronize()", record=l.e.record, synchronize=l.e.synchronize, s=l.s),
    "graph": lambda l: loop("launch(s)", launch=l.graph.launch, s=l.s),
}

CURRENT = "no context is pushed: the thread's stays current"
NOTES = {
    "wait-stream": "e.record(s) and other.wait_event(e): it has no wait for a stream",
    "record-default": CURRENT,
    "wait-default": CURRENT,
    "query-default": CURRENT,
    "wait-stream-default": CURRENT + "; e.record(s) and default.wait_event(e)",
    "launch": "cupy.cuda.Function, below RawKernel",
    "alloc-free": "cupy.cuda.alloc and del: from its own pool, mostly without the driver",
}

peer.main("CuPy", cupy.__version__, Lane, ROWS, NOTES, {})
