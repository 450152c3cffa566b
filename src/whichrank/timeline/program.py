"""The program a rank follows, read from the order of its operations.

Training repeats itself. What a rank issues after a given run of operations is known from its own
past and from ranks that do the same work, so a rank that takes another path can be recognised even
where no majority exists: in a group of two, or when everybody is stuck in a different group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from whichrank.model.findings import CodePlace
from whichrank.records.dump import Call, Frame
from whichrank.timeline.lineup import Lineup
from whichrank.timeline.signature import bare_name

# Longest run of operations used as context, and how far back a rank's past is read.
CONTEXTS = (24, 12, 6, 3, 2, 1)
TAIL = 400
# Programs of at most so many ranks are pooled: enough for a majority, bounded for 4,096 ranks.
POOL = 96

_LIBRARY = ("/site-packages/", "/dist-packages/", "<frozen", "<string>", "/lib/python3")


def is_library(frame: Frame) -> bool:
    """Whether a frame belongs to torch, another installed package or Python itself."""
    return any(part in frame.file for part in _LIBRARY) or frame.file.startswith("torch/")


def place_of(call: Call, rank: int | None = None) -> CodePlace | None:
    """The line of the user's own code that issued the call; None for C++ threads."""
    for frame in call.stack:
        if not is_library(frame):
            return CodePlace(frame.file, frame.line, frame.function, rank)
    if call.stack:
        frame = call.stack[-1]
        return CodePlace(frame.file, frame.line, frame.function, rank)
    return None


Label = int


@dataclass(frozen=True, slots=True)
class Deviation:
    """Where a rank left the path: it issued `row` where `expected` was due."""

    row: int
    expected: int
    """A row that shows what was due here: of another rank if one went this way, else an earlier one of its own."""


@dataclass(slots=True)
class Programs:
    """Labelled operation sequences of some ranks, and what follows what in them."""

    lineup: Lineup
    labels: dict[int, list[Label]] = field(default_factory=dict)
    """Rank -> its recent operations, in the order of `rows`."""
    rows: dict[int, list[int]] = field(default_factory=dict)
    finished: dict[Label, int] = field(default_factory=dict)
    """Label -> how often it was seen to finish."""
    _strands: dict[int, list[list[int]]] = field(default_factory=dict)
    """Rank -> for each of its recorders the places in `rows`: two recorders have no common order."""
    _ids: dict[tuple[object, ...], Label] = field(default_factory=dict)
    _by_call: dict[tuple[int, int], Label] = field(default_factory=dict)
    _follow: dict[tuple[Label, ...], Counter[tuple[Label, int]]] = field(default_factory=dict)
    _example: dict[Label, dict[int, int]] = field(default_factory=dict)
    """Label -> rank -> a row that shows it."""

    def label(self, row: int) -> Label:
        """A name for the operation that is the same on every rank that runs the same line for its own group."""
        lineup = self.lineup
        key = (int(lineup.group[row]), int(lineup.call[row]))
        found = self._by_call.get(key)
        if found is None:
            call = lineup.calls[key[1]]
            kind: tuple[object, ...] = lineup.groups[key[0]].kind if key[0] >= 0 else ("?", 0)
            place = place_of(call)
            # A dump that was written in haste has no frames: then no line may tell operations apart.
            where = (place.file, place.line, place.function) if place and lineup.placed else ()
            what = (
                lineup.call_signature[key[1]]
                if not call.p2p
                else (bare_name(call.op), call.input_sizes or call.output_sizes)
            )
            found = self._by_call[key] = self._ids.setdefault((kind, what, where), len(self._ids))
        return found

    def add(self, rank: int) -> None:
        """Read a rank's recent operations."""
        if rank in self.labels:
            return
        rows = list(self.lineup.rows(rank))[-TAIL:]
        labels = self.labels[rank] = [self.label(row) for row in rows]
        self.rows[rank] = rows
        strands: dict[int, list[int]] = {}
        sources = self.lineup.source[rows].tolist() if rows else []
        done = self.lineup.done[rows].tolist() if rows else []
        for place, (row, label, source) in enumerate(zip(rows, labels, sources, strict=True)):
            self._example.setdefault(label, {})[rank] = row
            self.finished[label] = self.finished.get(label, 0) + done[place]
            strands.setdefault(source, []).append(place)
        self._strands[rank] = list(strands.values())
        for strand in self._strands[rank]:
            self._learn(rank, [labels[place] for place in strand])

    def add_all(self, ranks: Iterable[int]) -> None:
        """Read ranks that will be compared: all of them first, so that they speak for each other."""
        for rank in ranks:
            self.add(rank)

    def _learn(self, rank: int, labels: list[Label]) -> None:
        for index, label in enumerate(labels):
            for length in CONTEXTS:
                if index >= length:
                    context = tuple(labels[index - length : index])
                    self._follow.setdefault(context, Counter())[label, rank] += 1

    def _followers(self, rank: int, labels: list[Label], index: int) -> Counter[tuple[Label, int]]:
        """What came next after the same run of operations, and on which rank; the passage itself does not count.

        The longest run with at least two other passages decides: a single one may be the odd one itself.
        """
        single: Counter[tuple[Label, int]] = Counter()
        for length in CONTEXTS:
            if index < length:
                continue
            counted = Counter(self._follow.get(tuple(labels[index - length : index]), {}))
            counted[labels[index], rank] -= 1
            counted = +counted
            if counted.total() > 1:
                return counted
            single = single or counted
        return single

    def deviations(self, rank: int, back: int) -> list[Deviation]:
        """The operations among the last `back` of a rank that nothing supports, oldest first."""
        self.add(rank)
        rows, oldest = self.rows[rank], len(self.rows[rank]) - back
        found: list[Deviation] = []
        for strand in self._strands[rank]:
            labels = [self.labels[rank][place] for place in strand]
            for index, place in enumerate(strand):
                due = self._followers(rank, labels, index) if index > 0 and place >= oldest else None
                if due and all(label != labels[index] for label, _ in due):
                    found.append(Deviation(rows[place], self._due_row(rank, due)))
        return sorted(found, key=lambda deviation: deviation.row)

    def _due_row(self, rank: int, due: Counter[tuple[Label, int]]) -> int:
        sums: Counter[Label] = Counter()
        for (label, _), count in due.items():
            sums[label] += count
        expected = sums.most_common(1)[0][0]
        others = [by for label, by in due if label == expected and by != rank]
        return self._example[expected][min(others, default=rank)]


def pool_programs(lineup: Lineup) -> Programs:
    """The programs of enough ranks to compare with, evenly over the job: pipeline stages have programs of their own."""
    programs = Programs(lineup)
    count = len(lineup.dumped)
    programs.add_all(lineup.dumped[number * count // POOL] for number in range(POOL))
    return programs
