"""The program a rank follows, read from the order of its operations.

Training repeats itself. What a rank issues after a given run of operations is known from its own
past and from ranks that do the same work, so a rank that takes another path can be recognised even
where no majority exists: in a group of two, or when everybody is stuck in a different group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
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


@dataclass(slots=True)
class Deviation:
    """Where a rank left the path: it issued `row` where `expected` was due."""

    rank: int
    row: int
    expected: int | None
    """A row of some rank that shows what was due here; None if only "not this" is known."""
    support: int
    """How many earlier or other passages speak for what was expected."""
    unknown_call: bool
    """True if nobody else, and never before, was seen to issue this operation."""


@dataclass(slots=True)
class Programs:
    """Labelled operation sequences of some ranks, and what follows what in them."""

    lineup: Lineup
    labels: dict[int, list[Label]] = field(default_factory=dict)
    rows: dict[int, list[int]] = field(default_factory=dict)
    _ids: dict[tuple[object, ...], Label] = field(default_factory=dict)
    _by_call: dict[tuple[int, int], Label] = field(default_factory=dict)
    _follow: dict[tuple[Label, ...], Counter[tuple[Label, int]]] = field(default_factory=dict)
    _example: dict[Label, int] = field(default_factory=dict)
    _issuers: dict[Label, Counter[int]] = field(default_factory=dict)

    def label(self, row: int) -> Label:
        """A name for the operation that is the same on every rank that runs the same line for its own group."""
        lineup = self.lineup
        key = (int(lineup.group[row]), int(lineup.call[row]))
        found = self._by_call.get(key)
        if found is None:
            call = lineup.calls[key[1]]
            kind: tuple[object, ...] = lineup.groups[key[0]].kind if key[0] >= 0 else ("?", 0)
            place = place_of(call)
            where = (place.file, place.line, place.function) if place else (call.thread,)
            what = (
                lineup.call_signature[key[1]]
                if not call.p2p
                else (bare_name(call.op), call.input_sizes or call.output_sizes)
            )
            full = (kind, what, where)
            found = self._by_call[key] = self._ids.setdefault(full, len(self._ids))
        return found

    def add(self, rank: int) -> None:
        """Read a rank's recent operations."""
        if rank in self.labels:
            return
        rows = list(self.lineup.rows(rank))[-TAIL:]
        labels = [self.label(row) for row in rows]
        self.rows[rank], self.labels[rank] = rows, labels
        for index, (row, label) in enumerate(zip(rows, labels, strict=True)):
            self._example.setdefault(label, row)
            self._issuers.setdefault(label, Counter())[rank] += 1
            for length in CONTEXTS:
                if index >= length:
                    context = tuple(labels[index - length : index])
                    self._follow.setdefault(context, Counter())[label, rank] += 1

    def example(self, label: Label) -> int:
        """Some row that shows this operation."""
        return self._example[label]

    def issuers(self, label: Label) -> Counter[int]:
        """Rank -> how often it issued this operation."""
        return self._issuers.get(label, Counter())

    def followers(self, rank: int, index: int) -> Counter[Label]:
        """What came next after the same run of operations, elsewhere or earlier; longest known run first.

        The passage at `index` of `rank` itself does not count.
        """
        labels = self.labels[rank]
        for length in CONTEXTS:
            if index < length:
                continue
            seen = self._follow.get(tuple(labels[index - length : index]))
            if not seen:
                continue
            counted: Counter[Label] = Counter()
            for (label, by), count in seen.items():
                own = by == rank and index < len(labels) and label == labels[index]
                counted[label] += count - 1 if own else count
            counted = +counted
            if counted:
                return counted
        return Counter()

    def deviations(self, rank: int, back: int) -> list[Deviation]:
        """The operations among the last `back` of a rank that nothing supports."""
        labels, rows = self.labels[rank], self.rows[rank]
        found: list[Deviation] = []
        for index in range(max(1, len(labels) - back), len(labels)):
            due = self.followers(rank, index)
            if not due or labels[index] in due:
                continue
            expected, support = due.most_common(1)[0]
            mine = self.issuers(labels[index])
            alone = set(mine) == {rank} and all(label != labels[index] for label in labels[:index])
            found.append(Deviation(rank, rows[index], self.example(expected), support, alone))
        return found

    def predicted(self, labels: Sequence[Label], count: int) -> list[Label]:
        """How a sequence of labels would go on, by what followed its longest known ending."""
        going = list(labels)
        for _ in range(count):
            for length in CONTEXTS:
                seen = self._follow.get(tuple(going[-length:])) if len(going) >= length else None
                if seen:
                    sums: Counter[Label] = Counter()
                    for (label, _), number in seen.items():
                        sums[label] += number
                    going.append(sums.most_common(1)[0][0])
                    break
            else:
                break
        return going[len(labels) :]


def pool_programs(lineup: Lineup, needed: Iterable[int]) -> Programs:
    """The programs of the ranks in question and of enough others to compare with."""
    programs = Programs(lineup)
    for rank in needed:
        if rank in lineup.first:
            programs.add(rank)
    step = max(1, len(lineup.dumped) // POOL)
    for rank in lineup.dumped[::step][:POOL]:
        programs.add(rank)
    return programs
