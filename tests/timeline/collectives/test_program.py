"""The path that ranks follow, and who left it."""

from __future__ import annotations

from tests.timeline.by_hand import Did, dump, lined_up
from whichrank.records.dump import Call, Dump, Frame
from whichrank.timeline.collectives.compare import going_on, is_behind_loop
from whichrank.timeline.collectives.lineup import Lineup
from whichrank.timeline.collectives.program import place_of, pool_programs

PAIR = {"0": (0, 1)}


def loop(count: int, *, leave_out: int = -1) -> list[Did]:
    """Steps of three different operations; one of them may be left out."""
    ops = [(step * 3 + n, n) for step in range(count) for n in range(3)]
    kept = [(number, n) for number, n in ops if number != leave_out]
    return [Did("0", ("all_gather", "all_reduce", "broadcast")[n], i + 1, line=10 + n) for i, (_, n) in enumerate(kept)]


def departures(lineup: Lineup, rank: int) -> list[tuple[int, str]]:
    found = pool_programs(lineup).deviations(rank, 300)
    return [(int(lineup.seq[d.row]), lineup.call_of(d.expected).op) for d in found]


def test_a_steady_loop_has_no_departures() -> None:
    lineup = lined_up(dump(0, PAIR, loop(8)), dump(1, PAIR, loop(8)))
    assert departures(lineup, 0) == departures(lineup, 1) == []


def test_the_operation_that_was_left_out() -> None:
    lineup = lined_up(dump(0, PAIR, loop(8, leave_out=13)), dump(1, PAIR, loop(8)))
    assert departures(lineup, 0) == [(14, "all_reduce")]
    assert departures(lineup, 1) == []


def test_its_own_past_is_enough() -> None:
    """Nobody else left a dump."""
    lineup = lined_up(dump(0, PAIR, loop(8, leave_out=13)))
    assert departures(lineup, 0) == [(14, "all_reduce")]


def test_a_rare_operation_that_all_issue_is_no_departure() -> None:
    rare = [*loop(6), Did("0", "barrier", 19, line=50), *[Did("0", d.op, d.seq + 19, line=d.line) for d in loop(2)]]
    lineup = lined_up(dump(0, PAIR, rare), dump(1, PAIR, rare))
    assert departures(lineup, 0) == []


def test_two_recorders_have_no_common_order() -> None:
    """A second recorder's entries fall between those of the first at random; that is no other path."""

    def both(rank: int, shift: float) -> list[Dump]:
        metrics = [Did("9", "all_reduce", n + 1, at_ms=7 * n + shift, line=70) for n in range(4)]
        return [dump(rank, PAIR, loop(8)), dump(rank, {"9": None}, metrics, backend="gloo")]

    lineup = lined_up(*both(0, 0.5), *both(1, 2.5))
    assert departures(lineup, 0) == departures(lineup, 1) == []


def test_every_stage_of_a_large_job_is_in_the_pool() -> None:
    """Ranks of the last stage have a program of their own; the pool must know it."""
    world = tuple(range(200))
    dumps = [dump(rank, {"0": world}, loop(4, leave_out=99 if rank < 150 else 1)) for rank in world]
    lineup = lined_up(*dumps)
    assert departures(lineup, 160) == []


def test_how_a_sequence_goes_on() -> None:
    assert going_on([1, 2, 3, 1, 2, 3, 1], 4) == [2, 3, 1, 2]
    assert going_on([1, 2, 3], 4) == []
    assert going_on([], 4) == []


def stack(*frames: tuple[str, str, int]) -> Call:
    return Call("all_reduce", "nccl", (), (), (), (), tuple(Frame(*frame) for frame in frames), "main", False, None)


LIBRARY = ("wrapper", "/opt/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", 81)


def test_the_users_own_line() -> None:
    place = place_of(stack(LIBRARY, ("sync", "/srv/job/grads.py", 12), ("main", "/srv/job/train.py", 40)), 3)
    assert str(place) == "grads.py:12 in sync"
    assert place is not None
    assert place.rank == 3
    assert place_of(stack()) is None


def test_behind_the_loop() -> None:
    """Compared in the function that both stacks share, however deep the loop's own calls are."""
    inside = [stack(LIBRARY, ("sync", "/srv/job/grads.py", n), ("main", "/srv/job/train.py", 40)) for n in (12, 90)]
    assert is_behind_loop(stack(LIBRARY, ("main", "/srv/job/train.py", 60)), inside)
    assert not is_behind_loop(stack(LIBRARY, ("main", "/srv/job/train.py", 30)), inside)
    assert not is_behind_loop(stack(LIBRARY, ("other", "/srv/job/else.py", 999)), inside)
    assert not is_behind_loop(stack(), inside)
