"""The same function over many items, on the cores of this machine.

Results come in the order of the items. An item whose function raises, or whose worker dies (killed for
memory, crashed in C code), becomes a `Failure`; the others are not touched by it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import Struct

T = TypeVar("T")
R = TypeVar("R")

# Below this, starting processes and moving results costs more than the work (about 20 ms each).
FEW_ITEMS = 8
LITTLE_BYTES = 32 << 20


class Failure(Struct, frozen=True):
    """What became of an item that gave no result."""

    message: str
    crashed: bool = False
    """The worker died; otherwise the function raised."""


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def map_ordered(
    function: Callable[[T], R],
    items: Sequence[T],
    *,
    jobs: int | None = None,
    size: Callable[[T], int] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[R | Failure]:
    """Apply the function to every item, in worker processes where that pays.

    `size` tells the bytes behind an item; without it only the number of items decides.
    `progress` is called with (done, total).
    """
    workers = min(jobs or cores(), len(items))
    little = size is not None and sum(map(size, items)) < LITTLE_BYTES
    if workers <= 1 or len(items) < FEW_ITEMS or little:
        return _here(function, items, progress)
    from whichrank.fleet.processes import Pool

    pool: Pool[T, R] = Pool(function, items, progress)
    try:
        return pool.run(workers)
    finally:
        pool.end()


def map_threads(
    function: Callable[[T], R],
    items: Sequence[T],
    *,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[R | Failure]:
    """The same in threads, for a function that spends its time outside Python: results need not travel."""
    results: list[R | Failure | None] = [None] * len(items)
    waiting, done = iter(range(len(items))), iter(range(1, len(items) + 1))
    stopped = False

    def work() -> None:
        for number in waiting:
            if stopped:
                return
            results[number] = attempt(function, items[number])
            count = next(done)
            if progress is not None and threading.current_thread() is here:
                progress(count, len(items))

    here = threading.current_thread()
    others = [threading.Thread(target=work, daemon=True) for _ in range(min(jobs or cores(), len(items)) - 1)]
    try:
        for thread in others:
            thread.start()
        work()
        for thread in others:
            thread.join()
    finally:
        stopped = True  # after Ctrl-C each of them ends with the item it is at
    return [result if result is not None else Failure("it was not read") for result in results]


def _here(
    function: Callable[[T], R], items: Sequence[T], progress: Callable[[int, int], None] | None
) -> list[R | Failure]:
    results: list[R | Failure] = []
    for item in items:
        results.append(attempt(function, item))
        if progress is not None:
            progress(len(results), len(items))
    return results


def attempt(function: Callable[[T], R], item: T) -> R | Failure:
    """The result for one item, or what the function raised."""
    try:
        return function(item)
    except Exception as error:  # noqa: BLE001 - one item's defect must not cost the others their result
        return Failure(f"{type(error).__name__}: {error}")
