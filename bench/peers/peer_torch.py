"""The rows by PyTorch."""

import functools

import peer
from peer import loop

try:
    import torch
except Exception as e:
    peer.absent("PyTorch", e)


class Lane(peer.Lane):
    def __init__(self, driver):
        super().__init__(driver)
        self.s, self.other = torch.cuda.Stream(), torch.cuda.Stream()

    def enter(self):
        torch.cuda.set_stream(self.s)

    def native(self, x):
        if isinstance(x, torch.cuda.Stream):
            return x.cuda_stream
        if isinstance(x, torch.cuda.Event):
            return x.cuda_event
        if isinstance(x, torch.Tensor):
            return x.data_ptr()
        return x

    def event(self, timing):
        e = torch.cuda.Event(enable_timing=timing)
        e.record(self.s)  # until then it has no handle
        return e

    e = functools.cached_property(lambda self: self.event(False))
    t = functools.cached_property(lambda self: self.event(True))
    start = functools.cached_property(lambda self: self.event(True))
    end = functools.cached_property(lambda self: self.event(True))

    @functools.cache
    def memory(self, size):
        dst = torch.empty(size, dtype=torch.uint8, device="cuda")
        return dst, torch.zeros(size, dtype=torch.uint8).pin_memory()

    @functools.cached_property
    def graph(self):
        g = torch.cuda.CUDAGraph()
        # The empty kernel is launched around PyTorch, which has none: the graph is the C loop's.
        self.driver.kernel
        with torch.cuda.graph(g, stream=self.s, capture_error_mode="relaxed"):
            self.driver.launch(self.s.cuda_stream)
        return g


default = torch.cuda.default_stream


def copy(l, size):
    dst, host = l.memory(size)
    return loop("copy(host, non_blocking=True)", copy=dst.copy_, host=host)


def alloc(l):
    return loop(
        "x = empty(65536, dtype=u8, device=device); del x",
        empty=torch.empty, u8=torch.uint8, device=torch.device("cuda", 0),
    )


ROWS = {
    "transition": lambda l: loop("version()", version=torch._C._cuda_getDriverVersion),
    "record": lambda l: loop("record(s)", record=l.e.record, s=l.s),
    "record-timing": lambda l: loop("record(s)", record=l.t.record, s=l.s),
    "query": lambda l: loop("query()", query=l.e.query),
    "wait": lambda l: loop("wait(other)", wait=l.e.wait, other=l.other),
    "wait-stream": lambda l: loop("wait_stream(s)", wait_stream=l.other.wait_stream, s=l.s),
    "stream-query": lambda l: loop("query()", query=l.s.query),
    "stream-sync": lambda l: loop("synchronize()", synchronize=l.s.synchronize),
    "elapsed": lambda l: loop("elapsed_time(end)", elapsed_time=l.start.elapsed_time, end=l.end),
    "event-life": lambda l: loop("e = Event(); e.record(s); del e", Event=torch.cuda.Event, s=l.s),
    "stream-life": lambda l: loop("s = Stream(); del s", Stream=torch.cuda.Stream),
    "current-stream": lambda l: loop("current_stream()", current_stream=torch.cuda.current_stream),
    "record-default": lambda l: loop("record(s)", record=l.e.record, s=default()),
    "wait-default": lambda l: loop("wait(s)", wait=l.e.wait, s=default()),
    "query-default": lambda l: loop("query()", query=default().query),
    "wait-stream-default": lambda l: loop("wait_stream(s)", wait_stream=default().wait_stream, s=l.s),
    "launch": lambda l: loop("sleep(0)", sleep=torch.cuda._sleep),
    "copy-4": lambda l: copy(l, 4),
    "copy-64k": lambda l: copy(l, 65536),
    "alloc-free": alloc,
    "round-trip": lambda l: loop("record(s); synchronize()", record=l.e.record, synchronize=l.e.synchronize, s=l.s),
    "graph": lambda l: loop("replay()", replay=l.graph.replay),
}

CURRENT = "no context is pushed: the thread's stays current"
NOTES = {
    "transition": "torch._C._cuda_getDriverVersion()",
    "wait": "e.wait(other), which other.wait_event(e) calls",
    "wait-stream": "makes an event each time",
    "stream-life": "takes one of a pool of 32 streams and destroys none",
    "record-default": CURRENT,
    "wait-default": CURRENT,
    "query-default": CURRENT,
    "wait-stream-default": CURRENT + "; makes an event each time",
    "launch": "torch.cuda._sleep(0), a kernel of its own with one argument: it has no launch of a user's kernel",
    "alloc-free": "torch.empty and del: from its own cache, mostly without the driver",
}

peer.main("PyTorch", torch.__version__, Lane, ROWS, NOTES, {})
