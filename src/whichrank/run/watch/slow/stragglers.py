"""A rank that holds the others up while the job goes on: it waits far less than all of them. Pure: looks in, one out.

Every rank counts how often it was found waiting for others. Over a window of blocks the share of a straggler is far
below that of every other rank, in nearly all blocks: ranks that take turns, or pause once, are not meant.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev

from whichrank.run.watch.job_processes import Member

SHORT_S, BLOCK_S = 2.5, 5.0
"""Of a short block, of which two make a block."""
BLOCKS, FEWEST = 12, 6
"""Blocks that are looked at, and how many there must be: half a minute."""
FEWEST_SHORT = 4
"""Short blocks behind the warm-up of a job that has already ended."""
STEPS = 20
"""Steps, or collectives where nobody counts steps, that every rank must have made in the window."""
GLANCES = 4
"""Of every rank in a short block; a rank with fewer (it follows others under Join, or is held) says nothing."""
LEAST, LEAST_SOON = 0.1, 0.15
"""Share of the time, over the whole window and over half of it: less is noise of arrivals, or not worth a word."""
FAR = 0.75
"""Times the share of the rank that waits least of the others: it must wait less than this."""
SURE = 4.0
"""Standard errors that the difference must have: of what was seen, and of that many looks at equal ranks."""
STEADY, UNEVEN = 0.3, 0.35
"""Every block must have so many times the steps of the busiest, and their spread be no more than this of the mean."""
AT_PACE = 0.6
"""Times the pace of the busiest block: with less the job starts or ends."""
MOST_BLOCKS = 0.8
"""Share of blocks in which it must wait least."""


@dataclass(frozen=True, slots=True)
class Straggler:
    """One rank, and what is known of it."""

    rank: int
    own: float
    """Share of the time in which it waits for others, and in which the others do."""
    others: float
    place: str
    seconds: float
    """Of the window."""

    @property
    def lost(self) -> float:
        """Share of the others' time that it costs."""
        return self.others - self.own

    def __str__(self) -> str:
        doing = f"; meanwhile it is mostly at {self.place}" if self.place else ""
        return (
            f"rank {self.rank} holds the others up: they wait {self.others:.0%} of the time and it waits {self.own:.0%}"
            f", over the last {self.seconds:.0f} s{doing}"
        )


@dataclass(slots=True)
class _Block:
    """What was counted in a few seconds."""

    seconds: float
    shares: dict[int, float]
    steps: int
    """Of the rank that made the fewest."""
    looks: dict[int, int]
    """At each rank."""


@dataclass(slots=True)
class Stragglers:
    """Feed it with looks; `now` is the rank that is a straggler at present."""

    now: Straggler | None = None
    _shorts: deque[_Block] = field(default_factory=lambda: deque(maxlen=2 * BLOCKS))
    _last: deque[_Block] = field(default_factory=lambda: deque(maxlen=2 * BLOCKS))
    """The newest short blocks with all ranks, for a job that ends before there are enough for the window."""
    _began: float = 0.0
    _before: dict[int, tuple[int, int, int, int]] = field(default_factory=dict)
    """Rank -> process, glances, waits, steps at the beginning of the block."""
    _members: dict[int, Member] = field(default_factory=dict)

    def observe(self, now_s: float, ranks: Sequence[Member]) -> Straggler | None:
        """One look at all ranks; the straggler, if there is one."""
        if now_s - self._began < SHORT_S:
            return self.now
        counts = {
            m.rank: (m.words.pid, m.words.looks, m.words.waits, m.words.steps or m.words.completed) for m in ranks
        }
        block = self._block(now_s - self._began, counts)
        if counts.keys() - self._before.keys():
            self._last.clear()
        self._began, self._before = now_s, counts
        if block is None:
            self._shorts.clear()  # ranks came, went or stand still: what was before says nothing
            self.now = None
            return None
        self._shorts.append(block)
        self._members = {m.rank: m for m in ranks}
        self._last.append(block)
        # The whole window, or its newest half: what has just begun is not to be hidden by what was before.
        blocks = _in_pairs(list(self._shorts))
        self.now = _judge(self._members, blocks, LEAST) if len(blocks) == BLOCKS else None
        self.now = self.now or _judge(self._members, blocks[-FEWEST:], LEAST_SOON)
        return self.now

    def at_the_end(self) -> Straggler | None:
        """Who held up a job that ended before a window was full: all of it but its start and end, or since a change."""
        blocks = list(self._last)
        short = [_under_way(blocks)] if len(blocks) < 2 * BLOCKS else []
        for window in (*short, _at_one_pace(blocks), _at_one_pace(blocks[:-1])):
            if found := _judge(self._members, window, LEAST_SOON, fewest=FEWEST_SHORT):
                return found
        return None

    def _block(self, seconds: float, counts: dict[int, tuple[int, int, int, int]]) -> _Block | None:
        if counts.keys() != self._before.keys() or len(counts) < 2 or seconds > 3 * BLOCK_S:
            return None
        shares, steps, glances = {}, [], {}
        for rank, (pid, looks, waits, step) in counts.items():
            before = self._before[rank]
            if before[0] != pid:
                return None
            steps.append(step - before[3])
            if (seen := looks - before[1]) >= GLANCES:
                glances[rank] = seen
                shares[rank] = (waits - before[2]) / seen
        return _Block(seconds, shares, min(steps), glances)


def _under_way(blocks: list[_Block]) -> list[_Block]:
    """Those from the first to the last in which the job made steps at its pace."""
    paces = [block.steps / block.seconds for block in blocks]
    full = [at for at, pace in enumerate(paces) if pace >= AT_PACE * max(paces)]
    return blocks[full[0] : full[-1] + 1] if full else []


def _at_one_pace(blocks: list[_Block]) -> list[_Block]:
    """The newest of them that have one pace: what came before a rank became slow is left out."""
    paces = [block.steps / block.seconds for block in blocks]
    first = len(blocks)
    while first and min(paces[first - 1 :]) >= AT_PACE * max(paces[first - 1 :]):
        first -= 1
    return blocks[first:]


def _in_pairs(shorts: list[_Block]) -> list[_Block]:
    """Two and two together, the newest with the one before it."""
    pairs = zip(shorts[len(shorts) % 2 :: 2], shorts[len(shorts) % 2 + 1 :: 2], strict=True)
    return [
        _Block(
            one.seconds + two.seconds,
            {rank: (one.shares[rank] + two.shares[rank]) / 2 for rank in one.shares.keys() & two.shares.keys()},
            one.steps + two.steps,
            {rank: one.looks[rank] + two.looks[rank] for rank in one.looks.keys() & two.looks.keys()},
        )
        for one, two in pairs
    ]


def _judge(ranks: dict[int, Member], blocks: list[_Block], least: float, *, fewest: int = FEWEST) -> Straggler | None:
    """Who waits least, if that is far less than all others, and nearly always."""
    if len(blocks) < fewest or sum(block.steps for block in blocks) < STEPS:
        return None
    steps = [block.steps / block.seconds for block in blocks]
    if min(steps) < STEADY * max(steps) or stdev(steps) > UNEVEN * fmean(steps):
        return None  # the others wait out a few long pauses (a checkpoint, an evaluation): each step is as fast as ever
    known = set.intersection(*(set(block.shares) for block in blocks))
    if len(known) < 2 or len(known) < len(ranks):
        return None
    mean = {rank: fmean(block.shares[rank] for block in blocks) for rank in known}
    rank = min(known, key=lambda r: (mean[r], r))
    others = sorted(known - {rank})
    gaps = [min(block.shares[other] for other in others) - block.shares[rank] for block in blocks]
    gap = min(mean[other] for other in others) - mean[rank]
    chance = sum(_variance(mean[each], blocks, each) for each in (rank, min(others, key=lambda r: mean[r]))) ** 0.5
    noise = max(stdev(gaps) / len(gaps) ** 0.5, chance)
    if gap < max(least, SURE * noise) or mean[rank] > FAR * (mean[rank] + gap):
        return None
    if sum(each > 0 for each in gaps) < MOST_BLOCKS * len(gaps):
        return None
    place = ranks[rank].words.busy_at
    if all(ranks[other].words.busy_at == place for other in others):
        place = ""  # where all are most of the time does not tell what it does beside
    return Straggler(
        rank, mean[rank], fmean(mean[other] for other in others), place,
        sum(block.seconds for block in blocks),
    )  # fmt: skip


def _variance(share: float, blocks: list[_Block], rank: int) -> float:
    """Of a share that so many looks found."""
    return share * (1 - share) / sum(block.looks[rank] for block in blocks)
