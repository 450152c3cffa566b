"""The scanner in C (`_scan.c`), where it was built: batches of well-formed events as columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import ModuleType
from typing import NamedTuple

from whichrank.evidence.extension import built

_VERSION = 1
"""Of what `_scan.scan` takes and returns: a library left over from another version is not used."""
NAME, USEFUL, CATEGORY, LANE = range(4)
TELLING = 1 << 32
"""Added to a name's number: its spans may carry a collective's arguments."""


class Scanned(NamedTuple):
    """The events of one batch; its length is their number."""

    events: int
    columns: tuple[bytes, ...]
    """Start, end (64 bits each), name, lane, category (32 bits), stream and correlation (64 bits)."""
    collectives: list[tuple[int, bytes]]
    """Rows that carry a collective's arguments, and those as JSON."""
    titles: list[bytes]
    """Names of processes and threads, as whole events; those that repeat what is known are left out."""

    def __len__(self) -> int:
        return self.events


@lru_cache(maxsize=1)
def library() -> ModuleType | None:
    """The library, unless it was not built or WHICHRANK_NATIVE=0 switches it off."""
    return built("whichrank.evidence.readers.kineto._scan", _VERSION)


Fast = Callable[[bytes, int], "Scanned | None"]


def scanner(*, exact: bool, number: Callable[[int, bytes, bytes], int]) -> Fast | None:
    """How to scan the batches of one file: events with commas between them, so many bytes of what is given.

    None without the library; the scanner gives None for what only the decoder in Python can read.

    `number` numbers texts as they stand in the file (without quotes), in the order in which they are first used.
    """
    found = library()
    if found is None:
        return None
    scan, memory = found.scan, found.memory()

    def scanned(data: bytes, size: int) -> Scanned | None:
        answer = scan(memory, data, size, exact, number)
        return Scanned(*answer) if answer is not None else None

    return scanned
