"""Dumps that were taken long before where their rank is."""

from __future__ import annotations

from tests.timeline.by_hand import START_NS, Did, dump
from whichrank.records.dump import Dump
from whichrank.records.events.collectives import OperationsCounted
from whichrank.timeline.assemble import build_case

SECOND = 1_000_000_000
WORLD = {"0": (0, 1, 2)}


def taken(rank: int, count: int, *, at_s: int, done: bool = True) -> Dump:
    found = dump(rank, WORLD, [Did("0", "all_reduce", n + 1, done=done or n < count - 1) for n in range(count)])
    found.mtime_ns = START_NS + at_s * SECOND
    return found


def counted(rank: int, issued: int, *, at_s: int) -> OperationsCounted:
    return OperationsCounted(rank=rank, issued=issued, time_ns=START_NS + at_s * SECOND)


def test_a_dump_in_reserve_says_nothing_of_where_its_rank_is() -> None:
    dumps = [taken(0, 5, at_s=1), taken(1, 90, at_s=60, done=False), taken(2, 90, at_s=60, done=False)]
    case = build_case([*dumps, counted(0, 90, at_s=40), counted(1, 90, at_s=40), counted(2, 90, at_s=40)])
    assert case.lineup is not None
    assert case.lineup.dumped == [1, 2]
    assert ["85 operations" in (source.note or "") for source in case.set_aside] == [True]
    assert [trouble.meeting.seq for trouble in case.troubles] == [90], "and not 6"


def test_a_rank_that_has_done_nothing_since_is_where_its_dump_says() -> None:
    dumps = [taken(0, 5, at_s=1), taken(1, 6, at_s=60, done=False), taken(2, 6, at_s=60, done=False)]
    case = build_case([*dumps, counted(0, 5, at_s=1), counted(1, 6, at_s=40), counted(2, 6, at_s=40)])
    assert [trouble.ranks for trouble in case.troubles] == [(0,)]


def test_a_job_that_went_on_keeps_its_dumps() -> None:
    dumps = [taken(rank, 50, at_s=30) for rank in range(3)]
    case = build_case([*dumps, *(counted(rank, 400, at_s=90) for rank in range(3))])
    assert case.lineup is not None
    assert case.lineup.dumped == [0, 1, 2]
