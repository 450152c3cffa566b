"""Which calls are kept in detail: the last ones of every communicator, as places in the file."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from whichrank.evidence.text.chunks import Readable
from whichrank.records.nccl import KeptLines

Places = npt.NDArray[np.int64]

# Lines nearer than this are read together; at most so many: a read stays below 20 MB.
_GAP = 4096
_LINES_PER_READ = 1024


def kept_calls(slots: int) -> int:
    """How many calls to keep for each of this many communicators: about 25 MB of text for one file."""
    return max(256, min(4096, 131_072 // max(1, slots)))


class Slot(Struct):
    """One communicator of one process while its file is read."""

    process: int
    comm: str
    generation: int
    nranks: int | None = None
    total: int = 0
    first_line: int = 0
    _parts: list[Places] = field(default_factory=list)
    _singles: list[tuple[int, int, int]] = field(default_factory=list)
    _held: int = 0

    def add(self, place: tuple[int, int, int], limit: int) -> None:
        """One more call: where its line begins and ends, and the line's number."""
        self.total += 1
        self.first_line = self.first_line or place[2]
        self._singles.append(place)
        if len(self._singles) >= limit:
            self._flush(limit)

    def add_many(self, places: Places, count: int, first_line: int, limit: int) -> None:
        """So many more calls, the first of them in this line: the last ones as rows as in `add`."""
        self._flush(limit)
        self.total += count
        self.first_line = self.first_line or first_line
        self._parts.append(places[-limit:])
        self._held += len(self._parts[-1])
        if self._held > 2 * limit:
            self._trim(limit)

    def places(self, limit: int) -> Places:
        """The kept calls, oldest first."""
        self._flush(limit)
        self._trim(limit)
        return self._parts[0] if self._parts else np.empty((0, 3), np.int64)

    def _flush(self, limit: int) -> None:
        if self._singles:
            self._parts.append(np.array(self._singles[-limit:], np.int64))
            self._held += len(self._parts[-1])
            self._singles.clear()
            if self._held > 2 * limit:
                self._trim(limit)

    def _trim(self, limit: int) -> None:
        if self._parts:
            self._parts = [np.concatenate(self._parts)[-limit:]]
            self._held = len(self._parts[0])


def read_places(stream: Readable, places: Places) -> KeptLines:
    """The lines at these places, fetched with few reads."""
    if not len(places):
        return KeptLines(b"", np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))
    starts, ends, numbers = places.T.copy()
    breaks = np.flatnonzero((starts[1:] - ends[:-1] > _GAP) | (np.arange(1, len(places)) % _LINES_PER_READ == 0)) + 1
    parts: list[bytes] = []
    filled = 0
    for first, last in zip([0, *breaks], [*breaks, len(places)], strict=True):
        base, size = int(starts[first]), int(ends[last - 1] - starts[first])
        stream.seek(base)
        parts.append((stream.read(size) or b"").ljust(size, b"\0"))
        starts[first:last] += filled - base
        ends[first:last] += filled - base
        filled += size
    return KeptLines(b"".join(parts), starts, ends, numbers)
