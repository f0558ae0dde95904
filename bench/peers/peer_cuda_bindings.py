"""The rows by cuda.bindings, NVIDIA's driver functions in Python."""

import functools

import peer
from peer import loop

try:
    from importlib.metadata import version

    from cuda.bindings import driver as cu
except Exception as e:
    peer.absent("cuda.bindings", e)


def must(answer):
    """Returns what a function returns besides its result."""
    if answer[0] != cu.CUresult.CUDA_SUCCESS:
        raise RuntimeError(str(answer[0]))
    return answer[1] if len(answer) == 2 else None


class Lane(peer.Lane):
    def __init__(self, driver):
        super().__init__(driver)
        self.s, self.other = must(cu.cuStreamCreateWithPriority(1, 0)), must(cu.cuStreamCreateWithPriority(1, 0))

    def enter(self):
        must(cu.cuCtxSetCurrent(cu.CUcontext(self.driver.context)))

    def event(self, flags):
        e = must(cu.cuEventCreate(flags))
        must(cu.cuEventRecord(e, self.s))
        return e

    e = functools.cached_property(lambda self: self.event(2))
    again = functools.cached_property(lambda self: self.event(2))
    t = functools.cached_property(lambda self: self.event(0))
    start = functools.cached_property(lambda self: self.event(0))
    end = functools.cached_property(lambda self: self.event(0))

    @functools.cache
    def memory(self, size):
        return must(cu.cuMemAlloc(size)), cu.CUdeviceptr(must(cu.cuMemHostAlloc(size, 0)))

    @functools.cached_property
    def kernel(self):
        module = must(cu.cuModuleLoadData(self.driver.ptx))
        return must(cu.cuModuleGetFunction(module, self.driver.kernel_name.encode()))

    @functools.cached_property
    def graph(self):
        f = self.kernel
        must(cu.cuStreamBeginCapture(self.s, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
        must(cu.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, self.s, 0, 0))
        return must(cu.cuGraphInstantiate(must(cu.cuStreamEndCapture(self.s)), 0))


default = cu.CUstream(0)


def copy(l, size):
    dst, host = l.memory(size)
    return loop("copy(dst, host, size, s)", copy=cu.cuMemcpyAsync, dst=dst, host=host, size=size, s=l.s)


def record_and_wait(l, other):
    return loop(
        "record(e, s); wait(other, e, 0)",
        record=cu.cuEventRecord, wait=cu.cuStreamWaitEvent, e=l.again, s=l.s, other=other,
    )


def event_life(l):
    return loop(
        "_, e = create(2); record(e, s); destroy(e)",
        create=cu.cuEventCreate, record=cu.cuEventRecord, destroy=cu.cuEventDestroy, s=l.s,
    )


def round_trip(l):
    return loop(
        "record(e, s); synchronize(e)",
        record=cu.cuEventRecord, synchronize=cu.cuEventSynchronize, e=l.e, s=l.s,
    )


def alloc(l):
    return loop(
        "_, p = alloc(65536, s); free(p, s)",
        alloc=cu.cuMemAllocAsync, free=cu.cuMemFreeAsync, s=l.s,
    )


ROWS = {
    "transition": lambda l: loop("version()", version=cu.cuDriverGetVersion),
    "record": lambda l: loop("record(e, s)", record=cu.cuEventRecord, e=l.e, s=l.s),
    "record-timing": lambda l: loop("record(e, s)", record=cu.cuEventRecord, e=l.t, s=l.s),
    "query": lambda l: loop("query(e)", query=cu.cuEventQuery, e=l.e),
    "wait": lambda l: loop("wait(other, e, 0)", wait=cu.cuStreamWaitEvent, other=l.other, e=l.e),
    "wait-stream": lambda l: record_and_wait(l, l.other),
    "stream-query": lambda l: loop("query(s)", query=cu.cuStreamQuery, s=l.s),
    "stream-sync": lambda l: loop("synchronize(s)", synchronize=cu.cuStreamSynchronize, s=l.s),
    "elapsed": lambda l: loop("elapsed(start, end)", elapsed=cu.cuEventElapsedTime, start=l.start, end=l.end),
    "event-life": event_life,
    "stream-life": lambda l: loop(
        "_, s = create(1, 0); destroy(s)", create=cu.cuStreamCreateWithPriority, destroy=cu.cuStreamDestroy
    ),
    "record-default": lambda l: loop("record(e, s)", record=cu.cuEventRecord, e=l.e, s=default),
    "wait-default": lambda l: loop("wait(s, e, 0)", wait=cu.cuStreamWaitEvent, e=l.e, s=default),
    "query-default": lambda l: loop("query(s)", query=cu.cuStreamQuery, s=default),
    "wait-stream-default": lambda l: record_and_wait(l, default),
    "launch": lambda l: loop("launch(f, 1, 1, 1, 1, 1, 1, 0, s, 0, 0)", launch=cu.cuLaunchKernel, f=l.kernel, s=l.s),
    "copy-4": lambda l: copy(l, 4),
    "copy-64k": lambda l: copy(l, 65536),
    "alloc-free": alloc,
    "round-trip": round_trip,
    "graph": lambda l: loop("launch(x, s)", launch=cu.cuGraphLaunch, x=l.graph, s=l.s),
}

CURRENT = "no context is pushed: the thread's stays current"
NOTES = {row: CURRENT for row in ("record-default", "wait-default", "query-default", "wait-stream-default")}
MISSING = {"current-stream": "it has no current stream"}

peer.main("cuda.bindings", version("cuda-bindings"), Lane, ROWS, NOTES, MISSING)
