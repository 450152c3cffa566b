"""Two against two: the side that leaves the loop, or both sides where nothing decides."""

from __future__ import annotations

from tests.timeline.by_hand import Did, dump, lined_up
from whichrank.rules.code_collective.participation import conditional_collective
from whichrank.timeline.case import Case

WORLD = {"0": (0, 1, 2, 3)}
GATHER = Did("0", "all_gather", 7, done=False, line=30, function="evaluate")


def loop(count, last):
    return [*(Did("0", "all_reduce", n + 1) for n in range(count)), last]


def finding(*lasts):
    lineup = lined_up(*(dump(rank, WORLD, entries) for rank, entries in enumerate(lasts)))
    (found,) = conditional_collective.judge(Case(lineup=lineup, has_dumps=True))
    return found


def test_the_side_that_does_what_nobody_did_before_has_left_the_loop():
    goes_on = loop(6, Did("0", "all_reduce", 7, done=False))
    found = finding(goes_on, goes_on, loop(6, GATHER), loop(6, GATHER))
    assert found.subject.ranks == (2, 3)
    assert found.confidence < 0.7
    assert "anks 2-3 issued all_gather" in found.message


def test_both_sides_are_told_where_both_are_new():
    other = Did("0", "reduce_scatter", 7, done=False, line=40, function="save")
    found = finding(loop(6, other), loop(6, other), loop(6, GATHER), loop(6, GATHER))
    assert found.subject.ranks == ()
    assert found.subject.candidates == (0, 1, 2, 3)
    assert "ranks 0-1 issued reduce_scatter" in found.message
    assert "ranks 2-3 issued all_gather" in found.message
    assert "was expected" not in found.message
