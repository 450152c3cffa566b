"""The program a rank follows, read from the order of its operations.

Training repeats itself. What a rank issues after a given run of operations is known from its own
past and from ranks that do the same work, so a rank that takes another path can be recognised even
where no majority exists: in a group of two, or when everybody is stuck in a different group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
from msgspec import Struct, field

from whichrank.model.findings import CodePlace
from whichrank.records.dump import Call
from whichrank.records.stack import is_user_frame
from whichrank.timeline.collectives.lineup import Lineup, in_order
from whichrank.timeline.collectives.passages import CONTEXTS, Ints, Passages, run_hashes
from whichrank.timeline.collectives.signature import bare_name

# How far back a rank's past is read.
TAIL = 400
# Programs of at most so many ranks are pooled: enough for a majority, bounded for 4,096 ranks.
POOL = 96


def place_of(call: Call, rank: int | None = None) -> CodePlace | None:
    """The line of the user's own code that issued the call; None for C++ threads."""
    for frame in call.stack:
        if is_user_frame(frame):
            return CodePlace(frame.file, frame.line, frame.function, rank)
    if call.stack:
        frame = call.stack[-1]
        return CodePlace(frame.file, frame.line, frame.function, rank)
    return None


Label = int


class Deviation(Struct, frozen=True):
    """Where a rank left the path: it issued `row` where `expected` was due."""

    row: int
    expected: int
    """A row that shows what was due here: of another rank if one went this way, else an earlier one of its own."""


class Programs(Struct):
    """Labelled operation sequences of some ranks, and what follows what in them."""

    lineup: Lineup
    labels: dict[int, Ints] = field(default_factory=dict)
    """Rank -> its recent operations, in the order of `rows`."""
    rows: dict[int, Ints] = field(default_factory=dict)
    finished: Counter[Label] = field(default_factory=Counter)
    """Label -> how often it was seen to finish."""
    _strands: dict[int, list[Ints]] = field(default_factory=dict)
    """Rank -> for each of its recorders the places in `rows`: two recorders have no common order."""
    _ids: dict[tuple[object, ...], Label] = field(default_factory=dict)
    _by_call: dict[tuple[int, int], Label] = field(default_factory=dict)
    _places: dict[int, CodePlace | None] = field(default_factory=dict)
    """By the number of the call: groups share calls."""
    _passages: Passages = field(default_factory=Passages)
    _mixed: Passages = field(default_factory=Passages)
    """Of ranks with two recorders, over both of them in order of time."""

    def label(self, row: int) -> Label:
        """A name for the operation that is the same on every rank that runs the same line for its own group."""
        lineup = self.lineup
        key = (int(lineup.group[row]), int(lineup.call[row]))
        found = self._by_call.get(key)
        if found is None:
            call = lineup.calls[key[1]]
            kind: tuple[object, ...] = lineup.groups[key[0]].kind if key[0] >= 0 else ("?", 0)
            if key[1] not in self._places:
                self._places[key[1]] = place_of(call)
            place = self._places[key[1]]
            # A dump that was written in haste has no frames: then no line may tell operations apart.
            where = (place.file, place.line, place.function) if place and lineup.placed else ()
            what = (
                lineup.call_signature[key[1]]
                if not call.p2p
                else (bare_name(call.op), call.input_sizes or call.output_sizes)
            )
            found = self._by_call[key] = self._ids.setdefault((kind, what, where), len(self._ids))
        return found

    def add_all(self, ranks: Iterable[int]) -> None:
        """Read what ranks that will be compared did lately: all of them first, so that they speak for each other."""
        lineup = self.lineup
        spans = {rank: range(*lineup.first[rank])[-TAIL:] for rank in ranks if rank not in self.labels}
        if not spans:
            return
        rows = np.concatenate([np.arange(span.start, span.stop) for span in spans.values()])
        labels = self._labels_of(rows)
        self.finished.update(dict(enumerate(np.bincount(labels[lineup.done[rows]]).tolist())))
        cuts = np.cumsum([len(span) for span in spans.values()])[:-1]
        for rank, mine, said in zip(spans, np.split(rows, cuts), np.split(labels, cuts), strict=True):
            self.rows[rank], self.labels[rank] = mine, said
            source = lineup.source[mine]
            self._strands[rank] = [np.flatnonzero(source == recorder) for recorder in sorted(set(source.tolist()))]
            for strand in self._strands[rank]:
                self._passages.add(rank, said[strand])
            if len(self._strands[rank]) > 1:
                self._mixed.add(rank, said)

    def _labels_of(self, rows: Ints) -> Ints:
        """The labels of rows, each call of a group looked at once."""
        lineup = self.lineup
        keys = lineup.group[rows].astype(np.int64) * len(lineup.calls) + lineup.call[rows]
        order = in_order(keys)
        new = np.flatnonzero(np.diff(keys[order], prepend=keys.min(initial=0) - 1))
        distinct = np.array([self.label(int(row)) for row in rows[order[new]]], np.int64)
        labels = np.empty(len(rows), np.int64)
        labels[order] = np.repeat(distinct, np.diff(new, append=len(rows)))
        return labels

    def deviations(self, rank: int, back: int) -> list[Deviation]:
        """The operations among the last `back` of a rank that nothing supports, oldest first."""
        self.add_all([rank])
        found = [one for strand in self._strands[rank] for one in self._unsupported(rank, strand, back, self._passages)]
        return sorted(found, key=lambda deviation: deviation.row)

    def deviations_in_time(self, rank: int, back: int) -> list[Deviation]:
        """The same over both recorders of a rank: an operation on GPUs that is followed by one of the CPUs.

        Threads may issue them, and race: that counts only where no single recorder tells anything."""
        self.add_all([rank])
        if len(self._strands[rank]) < 2:
            return []
        return self._unsupported(rank, np.arange(len(self.rows[rank])), back, self._mixed)

    def _unsupported(self, rank: int, strand: Ints, back: int, passages: Passages) -> list[Deviation]:
        rows, oldest = self.rows[rank], len(self.rows[rank]) - back
        labels = self.labels[rank][strand]
        runs = {length: run_hashes(labels, length) for length in CONTEXTS}
        known: dict[tuple[int, int, Label], int | None] = {}
        found: list[Deviation] = []
        for index in range(max(1, int(np.searchsorted(strand, oldest))), len(strand)):
            here = {n: hashes[index - n] for n, hashes in runs.items() if index >= n}
            longest = next(iter(here))
            # Training repeats itself: what follows the same run, of which the shorter ones are parts, is told once.
            key = (longest, int(here[longest]), int(labels[index]))
            if key not in known:
                known[key] = self._due(rank, key[2], here, passages)
            due = known[key]
            if due is not None:
                found.append(Deviation(int(rows[strand[index]]), due))
        return found

    def _due(self, rank: int, label: Label, runs: dict[int, np.uint64], passages: Passages) -> int | None:
        """A row that shows what was due after these runs of operations, if `label` has nothing to support it.

        The longest run with at least two other passages decides: a single one may be the odd one itself.
        """
        single: tuple[Ints, Ints] | None = None
        for length, run in runs.items():
            follows, ranks = passages.after(length, run)  # this passage is among them
            if len(follows) == 2 and single is None:
                single = follows, ranks
            if len(follows) > 2:
                return self._expected(rank, label, follows, ranks)
        return self._expected(rank, label, *single) if single is not None else None

    def _expected(self, rank: int, label: Label, follows: Ints, ranks: Ints) -> int | None:
        if np.count_nonzero(follows == label) > 1:
            return None
        other = follows != label
        expected = int(Counter(follows[other].tolist()).most_common(1)[0][0])
        by = ranks[other & (follows == expected) & (ranks != rank)]
        shown_by = int(by.min()) if len(by) else rank
        return int(self.rows[shown_by][np.flatnonzero(self.labels[shown_by] == expected)[-1]])


def pool_programs(lineup: Lineup) -> Programs:
    """The programs of enough ranks to compare with, evenly over the job: pipeline stages have programs of their own."""
    programs = Programs(lineup)
    count = len(lineup.dumped)
    programs.add_all(lineup.dumped[number * count // POOL] for number in range(POOL))
    return programs
