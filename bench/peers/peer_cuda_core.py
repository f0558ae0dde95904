"""The rows by cuda.core, NVIDIA's Python objects."""

import functools

import peer
from peer import loop

try:
    from importlib.metadata import version

    from cuda import core

    if not hasattr(core, "Device"):  # before 0.5
        from cuda.core import experimental as core
except Exception as e:
    peer.absent("cuda.core", e)


def timed():
    try:
        return core.EventOptions(timing_enabled=True)
    except TypeError:  # before 1.0
        return core.EventOptions(enable_timing=True)


class Lane(peer.Lane):
    def __init__(self, driver):
        super().__init__(driver)
        self.enter()
        self.dev = core.Device(0)
        self.s, self.other = self.dev.create_stream(), self.dev.create_stream()

    def enter(self):
        core.Device(0).set_current()

    def native(self, x):
        return x if isinstance(x, int) else int(x.handle)

    def event(self, options=None):
        return self.s.record(options=options)

    e = functools.cached_property(lambda self: self.event())
    t = functools.cached_property(lambda self: self.event(timed()))
    start = functools.cached_property(lambda self: self.event(timed()))
    end = functools.cached_property(lambda self: self.event(timed()))

    @functools.cache
    def memory(self, size):
        return self.dev.allocate(size, stream=self.s), core.LegacyPinnedMemoryResource().allocate(size)

    one = functools.cached_property(lambda self: core.LaunchConfig(grid=1, block=1))

    @functools.cached_property
    def kernel(self):
        return core.ObjectCode.from_ptx(self.driver.ptx).get_kernel(self.driver.kernel_name)

    @functools.cached_property
    def graph(self):
        kernel = self.kernel
        builder = self.s.create_graph_builder()
        builder.begin_building()
        core.launch(builder, self.one, kernel)
        return builder.end_building().complete()


def version_of_driver(l):
    from cuda.core import system

    return loop("version()", version=system.get_user_mode_driver_version)


def copy(l, size):
    dst, host = l.memory(size)
    return loop("copy(host, stream=s)", copy=dst.copy_from, host=host, s=l.s)


ROWS = {
    "transition": version_of_driver,
    "record": lambda l: loop("record(e)", record=l.s.record, e=l.e),
    "record-timing": lambda l: loop("record(e)", record=l.s.record, e=l.t),
    "query": lambda l: loop("e.is_done", e=l.e),
    "wait": lambda l: loop("wait(e)", wait=l.other.wait, e=l.e),
    "wait-stream": lambda l: loop("wait(s)", wait=l.other.wait, s=l.s),
    "stream-sync": lambda l: loop("sync()", sync=l.s.sync),
    "elapsed": lambda l: loop("end - start", start=l.start, end=l.end),
    "event-life": lambda l: loop("record().close()", record=l.s.record),
    "stream-life": lambda l: loop("create().close()", create=l.dev.create_stream),
    "record-default": lambda l: loop("record(e)", record=l.dev.default_stream.record, e=l.e),
    "wait-default": lambda l: loop("wait(e)", wait=l.dev.default_stream.wait, e=l.e),
    "wait-stream-default": lambda l: loop("wait(s)", wait=l.dev.default_stream.wait, s=l.s),
    "launch": lambda l: loop("launch(s, one, f)", launch=core.launch, s=l.s, one=l.one, f=l.kernel),
    "copy-4": lambda l: copy(l, 4),
    "copy-64k": lambda l: copy(l, 65536),
    "alloc-free": lambda l: loop("alloc(65536, stream=s).close()", alloc=l.dev.allocate, s=l.s),
    "round-trip": lambda l: loop("record(e); sync()", record=l.s.record, sync=l.e.sync, e=l.e),
    "graph": lambda l: loop("launch(s)", launch=l.graph.launch, s=l.s),
}

CURRENT = "no context is pushed: the thread's stays current"
NOTES = {
    "transition": "system.get_user_mode_driver_version()",
    "wait-stream": "makes an event each time",
    "record-default": CURRENT,
    "wait-default": CURRENT,
    "wait-stream-default": CURRENT + "; makes an event each time",
    "launch": "cuLaunchKernelEx",
}
MISSING = {
    "stream-query": "streams have no query",
    "query-default": "streams have no query",
    "current-stream": "it has no current stream",
}

peer.main("cuda.core", version("cuda-core"), Lane, ROWS, NOTES, MISSING)
