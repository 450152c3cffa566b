"""Time in a rehearsal: nobody really sleeps, and the clocks tell as if they had.

A rank that sleeps waits until every other rank waits or sleeps; then the clock jumps. So a poll with a deadline sees
what the others do in the meantime, as it would in a real run. Short sleeps within one step only move the clock.
Threads and data workers, of which the referee knows nothing, sleep a fiftieth of the time.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from whichrank.worker.rehearsal import client

SHORT_S = 0.5
FASTER = 50.0

real_sleep = time.sleep
_time, _monotonic, _perf = time.time, time.monotonic, time.perf_counter
_time_ns, _monotonic_ns, _perf_ns = time.time_ns, time.monotonic_ns, time.perf_counter_ns


def sleep(seconds: float) -> None:
    """Called as time.sleep."""
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    line = client.current()
    if line is None or threading.current_thread() is not threading.main_thread():
        real_sleep(seconds / FASTER)
        return
    line.debt += seconds
    if line.debt < SHORT_S:
        line.offset += seconds
        return
    line.debt = 0.0
    line.sleep(seconds)


def offset() -> float:
    line = client.current()
    return line.offset if line is not None else 0.0


def install() -> None:
    """Replace the functions of the module `time`; torch and the standard library's threads keep the real ones."""
    module: Any = time
    module.sleep = sleep
    module.time = lambda: _time() + offset()
    module.monotonic = lambda: _monotonic() + offset()
    module.perf_counter = lambda: _perf() + offset()
    module.time_ns = lambda: _time_ns() + int(offset() * 1e9)
    module.monotonic_ns = lambda: _monotonic_ns() + int(offset() * 1e9)
    module.perf_counter_ns = lambda: _perf_ns() + int(offset() * 1e9)
