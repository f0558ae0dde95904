"""A peer that measures the driver's functions by ctypes, to try what the peers share."""

import functools
import os
import sys

sys.path.insert(0, os.environ["PEERS"])
import peer
from peer import loop


PROCESSORS = os.sched_getaffinity(0)


def masks():
    out = []
    for tid in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{tid}/status") as f:
                out += [line for line in f if line.startswith("Cpus_allowed_list")]
        except OSError:
            pass  # the thread has ended
    return out


class Lane(peer.Lane):
    def __init__(self, driver):
        super().__init__(driver)
        self.s, self.other = driver.get("cuStreamCreateWithPriority", 1, 0), driver.get("cuStreamCreateWithPriority", 1, 0)
        self.free = set(masks())

    def enter(self):
        self.driver.call("cuCtxSetCurrent", self.driver.context)

    e = functools.cached_property(lambda self: self.driver.get("cuEventCreate", 2))


def record(l):
    run = loop("call('cuEventRecord', e, s)", call=l.driver.call, e=l.e, s=l.s)

    def checked(n):
        # 2 is before the rounds, 3 a sample of one thread, 12 one of several.
        assert n in (1, 2, 3, 12), n
        bound = sum(m not in l.free for m in masks())
        assert bound == (1 if n == 3 and len(PROCESSORS) > 1 else 0), (n, bound)
        run(n)

    return checked


peer.main("test", "1", Lane, {"record": record}, {}, {"wait": "why not"})
