"""CPU that a piece of work may take, in measures of this machine at this moment: a slow or busy one changes nothing."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_USUAL_S = 0.012
"""What the reference work takes on the machine on which the limits were set."""


def pace() -> float:
    """How many times as long as usual work takes now."""
    began = time.thread_time()
    words: dict[str, int] = {}
    text = "".join(f"[rank{n}] step {n} loss {n / 7:.3f}\n" for n in range(6_000))
    for found in re.finditer(r"\[rank(\d+)\] step \d+ loss [\d.]+", text):
        words[found[1]] = words.get(found[1], 0) + len(found[0])
    return (time.thread_time() - began) / _USUAL_S


@contextmanager
def at_most(usual_s: float) -> Iterator[None]:
    """Fails where the block takes more CPU than would take so many seconds on a usual machine."""
    began = time.process_time()
    yield
    took = time.process_time() - began
    if took >= usual_s:
        relative = took / max(pace() for _ in range(3))
        assert relative < usual_s, f"{took:.2f} s of CPU, which are {relative:.2f} s on a usual machine"


def linear(work: Callable[[int], object], size: int, times: int = 8) -> None:
    """Fails where the work on so many times as much takes far more than so many times as long, as a square would."""
    little, much = (min(_cpu(work, n) for _ in range(3)) for n in (size, times * size))
    assert much < 3 * times * little, f"{little:.4f} s of CPU for {size}, {much:.4f} s for {times * size}"


def _cpu(work: Callable[[int], object], size: int) -> float:
    began = time.process_time()
    work(size)
    return time.process_time() - began
