"""Known messages of failure, wherever they stand in text: the signatures of the knowledge base.

Any output may hold them: logs of ranks, of launchers, of libraries that no other reader knows, and what a person
wrote or pasted. Memory does not grow with the file: of each signature the first and the last of each process are kept.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from functools import cache

import numpy as np
import numpy.typing as npt

from whichrank.evidence.readers._anchors import Anchors
from whichrank.evidence.readers._prefixes import Clock, PathHint, Voice, hint_of_path, listen, stated_year
from whichrank.evidence.readers._textscan import LONGEST, chunks, is_text
from whichrank.facts.messages import KNOWN, REPORT, Signature, signatures
from whichrank.model.contracts import Item, Reading
from whichrank.model.evidence import Ref
from whichrank.records.nccl import NcclLog
from whichrank.records.sighting import Sighting

NAME = "messages"

FIRST, LAST = 50, 50
"""Sightings kept per signature and process."""
_SPEAKERS, _MOST = 4096, 16384
"""Processes told apart, and sightings kept in all."""
_A_NOTE = 1 << 16
"""What a person writes about a failure is not longer."""
_QUOTE = 400
_SHAPES = 1 << 14
_DIGITS = b"0123456789"
# Programs and their documents quote messages without having seen them.
_NO_EVIDENCE = (".py", ".pyi", ".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".md", ".rst", ".ipynb", ".html", ".csv")
# host:pid:tid [device], as NCCL and its plug-ins begin their lines.
_PROCESS = re.compile(r"(?:^|[\s>\]])([A-Za-z0-9][\w.-]{0,253}):(\d{1,10}):(\d{1,10}) (?:\[-?\d{1,9}\] )?")
_EXTRA = 80
_OUTPUT = re.compile(
    rb"NCCL (?:INFO|WARN|VERSION|TRACE|CALL)|[Ww]arning[: ]|WARNING|ERROR|\bINFO\b"
    rb"|^\s{0,8}File |^\[|^\d{4}-\d\d|\.py:\d"
)
"""Marks of lines that a program printed."""


def sniff(head: bytes, name: str) -> bool:
    """Whether the beginning of the file holds a known message."""
    if not is_text(head) or name.lower().endswith(_NO_EVIDENCE):
        return False
    return any(anchor in head for anchor in KNOWN.anchors)


def read(item: Item) -> Reading:
    """Every known message, in the order of the file."""
    if item.label.lower().endswith(_NO_EVIDENCE):
        return Reading([], "ignored", "code or a document, not output")
    search = _Search(item, KNOWN.anchors | KNOWN.words if item.size <= _A_NOTE else KNOWN.anchors)
    for chunk in chunks(item.path):
        search.scan(chunk)
    records = search.sightings()
    if not records:
        return Reading([], "ignored", "no known message in it")
    note = f"{search.dropped} repeated message(s) not kept" if search.dropped else ""
    return Reading(list(records), "complete", note)


def read_warnings(item: Item, logs: Iterable[NcclLog]) -> Reading:
    """The known messages among the warnings that NCCL's reader found: a large log of NCCL alone is read once."""
    search = _Search(item, KNOWN.anchors)
    for log in logs:
        for process in log.processes:
            for warning in (*process.warnings, *process.notes):
                search.see(f"{process.label}:0 [0] NCCL {warning.level} {warning.text}".encode(), warning.line)
    return Reading(list(search.sightings()), "complete" if search.sightings() else "ignored")


@cache
def _anchors() -> Anchors:
    return Anchors(KNOWN.anchors)


@cache
def _order() -> dict[str, int]:
    return {name: number for number, name in enumerate(signatures())}


def _breaks(codes: npt.NDArray[np.uint8]) -> int:
    """How many lines end there; four times as quick as `bytes.count` on short lines."""
    return int(np.count_nonzero(codes == 10))


def _all_lines(chunk: bytes) -> Iterator[tuple[int, int]]:
    start = 0
    while start < len(chunk):
        end = chunk.find(b"\n", start)
        end = len(chunk) if end < 0 else end
        yield start, end
        start = end + 1


class _Kept:
    """Sightings of one signature by one process: the first and the last."""

    __slots__ = ("count", "first", "last")

    def __init__(self) -> None:
        self.count = 0
        self.first: list[Sighting] = []
        self.last: deque[Sighting] = deque(maxlen=LAST)

    def add(self, sighting: Sighting) -> bool:
        """Keep it; whether more is kept than before."""
        self.count += 1
        grows = self.count <= FIRST + LAST
        (self.first if len(self.first) < FIRST else self.last).append(sighting)
        return grows


class _Search:
    """One pass over a file."""

    def __init__(self, item: Item, literals: dict[bytes, tuple[Signature, ...]]) -> None:
        self._literals = literals
        self._every = item.size <= _A_NOTE
        self._total = 0
        self._label = item.label
        self._hint: PathHint = hint_of_path(item.label)
        self._clock = Clock(item.mtime_ns, stated_year(item.head(1 << 16)))
        self._lines = 0
        self._newest: int | None = None
        self._kept: dict[tuple[str, object], _Kept] = {}
        self._fitting: dict[bytes, tuple[Signature, ...]] = {}

    def scan(self, chunk: bytes) -> None:
        counted, codes = 0, np.frombuffer(chunk, np.uint8)
        lines = _all_lines(chunk) if self._every else _anchors().lines(chunk)
        for start, end in lines:
            self._lines += _breaks(codes[counted:start])
            counted = start
            line = chunk[start:end]
            if len(line) > LONGEST:
                line = line[: LONGEST // 2] + b" ... " + line[-LONGEST // 2 :]
            if fitting := self._fits(line):
                self._see(line, self._lines + 1, fitting)
        self._lines += _breaks(codes[counted:])

    def see(self, line: bytes, number: int) -> None:
        """Look at a single line."""
        if fitting := self._fits(line):
            self._see(line, number, fitting)

    def _fits(self, line: bytes) -> tuple[Signature, ...]:
        """The signatures whose anchors stand in a line; worked out once for each shape of a line."""
        shape = line.translate(None, _DIGITS)
        known = self._fitting.get(shape)
        if known is None:
            found = {s.id: s for anchor, items in self._literals.items() if anchor in line for s in items}
            known = tuple(sorted(found.values(), key=lambda s: _order()[s.id]))
            if len(shape) <= 2048:
                if len(self._fitting) >= _SHAPES:
                    self._fitting.clear()
                self._fitting[shape] = known
        return known

    def _see(self, line: bytes, number: int, fitting: tuple[Signature, ...]) -> None:
        voice: Voice | None = None
        taken: list[tuple[int, int]] = []
        printed = False
        for signature in fitting:
            if signature.library == REPORT and (printed or _OUTPUT.search(line)):
                continue  # a program's words, not a person's
            if voice is None:
                voice = listen(line, self._clock)
                whole = voice.text
            found = signature.search(whole)
            if found is None:
                continue
            start = whole.find(found[0])
            span = (start, start + len(found[0]))
            if any(begin < span[1] and span[0] < end for begin, end in taken):
                continue
            taken.append(span)
            printed |= signature.library != REPORT
            self._keep(signature, voice, number, whole, span, {k: v for k, v in found.groupdict().items() if v})

    def _keep(
        self, signature: Signature, voice: Voice, number: int, text: str, span: tuple[int, int], groups: dict[str, str]
    ) -> None:
        host, pid = _process(text[: span[0] + 1]) or (voice.host, voice.pid)
        rank = voice.rank if voice.rank is not None else self._hint.rank
        local = voice.local_rank if voice.local_rank is not None else self._hint.local_rank
        quote = text.strip()
        if len(quote) > _QUOTE:
            quote = text[max(0, span[0] - _EXTRA) :].strip()[:_QUOTE]
        ref = Ref(self._label, f"line {number}", quote, rank, host)
        speaker = (rank, local, pid, host)
        kept = self._kept.get((signature.id, speaker))
        if kept is None:
            if len(self._kept) >= _SPEAKERS:
                speaker = (None, None, None, None)
            kept = self._kept.setdefault((signature.id, speaker), _Kept())
        if voice.time_ns is not None:
            self._newest = max(voice.time_ns, self._newest or 0)
        after = None if voice.time_ns is not None else self._newest
        if self._total >= _MOST and 0 < kept.count < FIRST + LAST:
            kept.count += 1
            return
        self._total += kept.add(
            Sighting(signature.id, ref, number, rank, local, pid, host, voice.time_ns, after, groups, kept.count + 1)
        )

    def sightings(self) -> list[Sighting]:
        found = [s for kept in self._kept.values() for s in (*kept.first, *kept.last)]
        return sorted(found, key=lambda s: s.line)

    @property
    def dropped(self) -> int:
        return sum(kept.count - len(kept.first) - len(kept.last) for kept in self._kept.values())


def _process(before: str) -> tuple[str, int] | None:
    """Host and pid by the prefix of NCCL that stands last before the message."""
    found = list(_PROCESS.finditer(before[-300:]))
    return (found[-1][1], int(found[-1][2])) if found else None
