"""The steps of all ranks replayed: what would have happened had something been different.

Each rank goes through its chain: own time, arrivals at collectives, waits for them. A collective ends when its last
member has arrived, the one before it on the same stream is over, and its transfer is done. With the times as recorded
the replay must come out where the job did; then single times are changed and it runs again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct, field

from whichrank.records.profiles.steps import ARRIVE, WAIT, RankSteps
from whichrank.records.profiles.trace import Floats, Ints
from whichrank.timeline.steps.intervals import medians
from whichrank.timeline.steps.matching import Matched


class Chain(Struct):
    """One rank's part: links in order, times in nanoseconds."""

    begin: float
    kind: list[int]
    op: list[int]
    own: list[float]
    """Own time before each link, and after the last one."""


class Play(Struct, dict=True):
    """What is replayed."""

    chains: list[Chain]
    transfer: dict[int, float]
    before: dict[int, set[int]]
    """Operations that must be over before one can begin: those before it on the same streams."""
    members: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.members:
            for chain in self.chains:
                for kind, op in zip(chain.kind, chain.op, strict=True):
                    if kind == ARRIVE:
                        self.members[op] = self.members.get(op, 0) + 1

    @cached_property
    def after(self) -> dict[int, list[int]]:
        """By operation: those that can't begin before it is over."""
        found: dict[int, list[int]] = {}
        for op, earlier in self.before.items():
            for other in earlier:
                if op in self.members:
                    found.setdefault(other, []).append(op)
        return found


def run(play: Play) -> list[float] | None:
    """When each rank is through; None where the chains block each other (what was matched never met)."""
    alone = _alone(play) if len(play.chains) == 1 else None
    return [alone] if alone is not None else _Run(play).go()


def _alone(play: Play) -> float | None:
    """The same for a single rank, which waits for nobody but its own streams; None where their order is not its own."""
    (chain,) = play.chains
    transfer, before = play.transfer, play.before
    ended: dict[int, float] = {}
    clock = chain.begin
    for kind, op, own in zip(chain.kind, chain.op, chain.own, strict=False):
        clock += own
        if kind == ARRIVE:
            begun = clock
            for earlier in before.get(op, ()):
                if earlier not in ended:
                    return None
                begun = max(begun, ended[earlier])
            ended[op] = begun + transfer.get(op, 0.0)
        elif op not in ended:
            return None
        elif ended[op] > clock:
            clock = ended[op]
    return clock + chain.own[-1]


class _Run:
    """Clocks of the ranks, and what each operation still lacks."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.place = [0] * len(play.chains)
        self.clock = [chain.begin for chain in play.chains]
        self.missing = dict(play.members)
        self.latest: dict[int, float] = dict.fromkeys(play.members, float("-inf"))
        self.ended: dict[int, float] = {}
        self.waiting: dict[int, list[int]] = {}
        self.after = play.after
        for op, earlier in play.before.items():
            if op in self.missing:
                self.missing[op] += len(earlier)
        self.ready: list[int] = list(range(len(play.chains)))

    def go(self) -> list[float] | None:
        while self.ready:
            self._advance(self.ready.pop())
        if any(place <= len(chain.kind) for place, chain in zip(self.place, self.play.chains, strict=True)):
            return None
        return self.clock

    def _advance(self, rank: int) -> None:
        """Go on until the rank has to wait. This is the innermost loop of all advice: locals, no calls."""
        chain = self.play.chains[rank]
        kinds, ops, own = chain.kind, chain.op, chain.own
        missing, latest, ended = self.missing, self.latest, self.ended
        clock = self.clock[rank]
        for place in range(self.place[rank], len(kinds)):
            op = ops[place]
            if kinds[place] == ARRIVE:
                clock += own[place]
                latest[op] = max(latest[op], clock)
                missing[op] -= 1
                if not missing[op]:
                    self._complete(op)
            elif op in ended:
                clock = max(clock + own[place], ended[op])
            else:
                self.clock[rank], self.place[rank] = clock, place
                self.waiting.setdefault(op, []).append(rank)
                return
        self.clock[rank], self.place[rank] = clock + own[-1], len(kinds) + 1

    def _complete(self, op: int) -> None:
        """Everybody is there: it ends, and so may what waited for its stream."""
        todo = [op]
        while todo:
            op = todo.pop()
            self.ended[op] = end = self.latest[op] + self.play.transfer.get(op, 0.0)
            if op in self.waiting:
                self.ready += self.waiting.pop(op)
            for other in self.after.get(op, ()):
                self.latest[other] = max(self.latest[other], end)
                self.missing[other] -= 1
                if not self.missing[other]:
                    todo.append(other)


def prepare(matched: Matched) -> Play | None:
    """The recorded job as a play; None where there is nothing to replay."""
    ranks = matched.ranks
    if not ranks or not len(matched.op):
        return None
    numbers = numbers_of(matched)
    chains = chains_of(matched, numbers)
    ends = ends_of(matched)
    before = _before(matched, numbers, chains, ends)
    return Play(chains, _transfers(matched, before, ends), before)


def chains_of(matched: Matched, numbers: Sequence[Ints], more: Floats | None = None) -> list[Chain]:
    """The ranks' chains; `more` changes own times by a share of what they were spent on."""
    begins = [matched.time(index, int(one.start[0])) for index, one in enumerate(matched.ranks)]
    origin = min(begins)
    return [
        _chain(one, mine, begin - origin, more) for one, mine, begin in zip(matched.ranks, numbers, begins, strict=True)
    ]


def _chain(one: RankSteps, number: Ints, begin: int, more: Floats | None) -> Chain:
    """One rank's links with the operations' numbers; waits for what it never arrived at are its own time."""
    links = one.links
    own, after = links.own.astype(np.float64), float(one.tail.sum())
    if more is not None:
        own, after = np.maximum(own + links.spent @ more, 0), max(0.0, after + float(one.tail @ more))
    op, arrives = number[links.call], np.flatnonzero(links.kind == ARRIVE)
    arrived = np.full(int(number.max(initial=-1)) + 1, len(op))
    arrived[op[arrives[::-1]]] = arrives[::-1]  # of several the first stays
    known = np.flatnonzero((links.kind != WAIT) | (arrived[op] < np.arange(len(op))))  # others begun before the steps
    begins = np.r_[0, known + 1]
    times = np.add.reduceat(np.r_[own, after], begins)
    return Chain(float(begin), links.kind[known].tolist(), op[known].tolist(), times.tolist())


def numbers_of(matched: Matched) -> list[Ints]:
    """By rank: which operation each of its calls is."""
    in_turn = matched.op[np.lexsort((matched.call, matched.rank))]
    return np.split(in_turn, np.cumsum([len(one.calls.start) for one in matched.ranks])[:-1])


def _before(matched: Matched, numbers: Sequence[Ints], chains: Sequence[Chain], ends: Any) -> dict[int, set[int]]:
    """What ran just before each operation on the same stream of some rank.

    Only what also ended before it counts: ranks may disagree about the order of streams, and no cycle may arise.
    """
    played = [set(chain.op) for chain in chains]
    found: dict[int, set[int]] = {}
    for index, one in enumerate(matched.ranks):
        latest: dict[int, int] = {}
        for op, lane in zip(numbers[index].tolist(), one.calls.lane.tolist(), strict=True):
            if op not in played[index]:
                continue
            earlier = latest.get(lane, op)
            if (ends[earlier], earlier) < (ends[op], op):
                found.setdefault(op, set()).add(earlier)
            latest[lane] = op
    return found


def _transfers(matched: Matched, before: Mapping[int, set[int]], ends: Any) -> dict[int, float]:
    """How long each operation took once everybody was there and its stream was free."""
    played = np.flatnonzero(np.diff(matched.first))
    last = np.maximum.reduceat(matched.start, matched.first[played]).tolist() if len(played) else []
    found = {}
    for op, arrived in zip(played.tolist(), last, strict=True):
        begun = arrived
        for earlier in before.get(op, ()):
            begun = max(begun, ends[earlier])
        found[op] = max(0.0, ends[op] - begun)
    return found


def ends_of(matched: Matched) -> Any:
    """When each operation ended, on the aligned clock."""
    return medians(matched.end, matched.first).tolist()


def span(times: Sequence[float] | None) -> float | None:
    """From the common beginning to the last rank's end."""
    return max(times) if times else None


def own_clock(chain: Chain) -> Any:
    """The rank's own time at each link and at its end."""
    return np.cumsum(np.asarray(chain.own, np.float64))
