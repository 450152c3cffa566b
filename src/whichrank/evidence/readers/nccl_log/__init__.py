"""NCCL logs of 2.7 to 2.32, one process or many to a file, alone or among other output."""

from __future__ import annotations

from whichrank.evidence.readers.nccl_log.messages import version
from whichrank.evidence.readers.nccl_log.prefix import LEVEL
from whichrank.evidence.readers.nccl_log.scan import Scanner, scan_bytes, scan_stream
from whichrank.evidence.text.chunks import UTF16, Chunk
from whichrank.evidence.text.words import Found
from whichrank.model.contracts import Item, Reading
from whichrank.model.errors import UnreadableError
from whichrank.records.nccl import NcclLog

NAME = "nccl_log"
ALONE_ABOVE = 8 << 20
"""A log of NCCL alone that is larger than this is read once."""

_UTF16_LIMIT = 64 << 20


def sniff(head: bytes, name: str) -> bool:
    """Whether the file begins as a NCCL log does; files that mention NCCL later are found by `mentions`."""
    del name
    return mentions(_decoded(head))


def mentions(text: bytes) -> bool:
    """Whether a NCCL line, or the version that NCCL prints without one, stands in this text."""
    return LEVEL.search(text) is not None or version(text) is not None


def read(item: Item) -> Reading:
    """Everything that NCCL printed into this file."""
    try:
        if item.head(2) in UTF16:
            if item.size > _UTF16_LIMIT:
                raise UnreadableError(f"{item.label}: UTF-16 text of {item.size} bytes", "Convert it to UTF-8 first.")
            log = scan_bytes(_decoded(item.read()), item.label)
        else:
            with item.path.open("rb", buffering=0) as stream:
                log = scan_stream(stream, item.label)
    except OSError as error:
        raise UnreadableError(f"{item.label}: {error.strerror or error}") from error
    return reading(log)


class Listener:
    """NCCL's lines of a text that is read for others too; not of UTF-16."""

    words = frozenset[bytes]()

    def __init__(self, item: Item) -> None:
        self._item = item
        self._scanner = Scanner(item.label)

    def take(self, chunk: Chunk, found: Found) -> None:
        """Read one chunk."""
        del found
        self._scanner.take(chunk)

    def finish(self) -> Reading:
        """Everything that NCCL printed."""
        if not (self._scanner.log.processes or self._scanner.log.versions):
            return reading(self._scanner.log)
        with self._item.path.open("rb", buffering=0) as stream:
            log = self._scanner.finish(stream)
            stream.seek(-1, 2)
            log.cut_end = stream.read(1) != b"\n"
        return reading(log)


def reading(log: NcclLog) -> Reading:
    """The answer of a reader for this log."""
    if not log.processes and not log.versions:
        return Reading([], "ignored", "no NCCL lines")
    notes = []
    if log.cut_end:
        notes.append("the last line is cut")
    if unplaced := sum(process.unplaced_calls for process in log.processes):
        notes.append(f"{unplaced} calls without a readable communicator")
    return Reading([log], "partial" if unplaced else "complete", "; ".join(notes))


def _decoded(data: bytes) -> bytes:
    if data[:2] in UTF16:
        return data[: len(data) & ~1].decode("utf-16", "replace").encode("utf-8", "replace")
    return data
