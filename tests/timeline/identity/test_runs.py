"""Which dumps belong together, and which rank each one is."""

from __future__ import annotations

from tests.timeline.by_hand import dump, steps
from whichrank.timeline.identity.runs import choose_run

HOUR = 3600 * 10**9
WORLD = {"0": (0, 1, 2, 3)}


def test_the_newest_run_is_taken_and_the_rest_is_named() -> None:
    old = [dump(rank, WORLD, steps(4)) for rank in range(4)]
    new = [dump(rank, WORLD, steps(4), offset_ns=HOUR) for rank in range(4)]
    run = choose_run([*new, *old])
    assert run.dumps == new
    assert {id(made) for made, _ in run.aside} == {id(made) for made in old}
    assert all("earlier" in why for _, why in run.aside)


def test_one_late_leftover_is_not_the_run() -> None:
    """A single newer file of another job does not push four dumps aside."""
    whole = [dump(rank, {"0": tuple(range(8))}, steps(4)) for rank in range(8)]
    stray = dump(0, WORLD, steps(4), offset_ns=HOUR)
    run = choose_run([*whole, stray])
    assert run.dumps == whole
    assert [made for made, _ in run.aside] == [stray]


def test_a_quick_restart_is_told_by_a_second_buffer_of_the_same_rank() -> None:
    early = [dump(rank, WORLD, steps(4)) for rank in range(4)]
    late = [dump(rank, WORLD, steps(4), offset_ns=30 * 10**9) for rank in range(4)]
    assert choose_run([*early, *late]).dumps == late


def test_hosts_with_other_clocks_are_one_run() -> None:
    dumps = [dump(rank, WORLD, steps(4), offset_ns=rank * 20 * 10**9) for rank in range(4)]
    assert choose_run(dumps).dumps == dumps


def test_of_two_files_of_one_buffer_the_fuller_is_taken() -> None:
    short, long = dump(0, WORLD, steps(4)), dump(0, WORLD, steps(6))
    run = choose_run([long, short, dump(1, WORLD, steps(6))])
    assert long in run.dumps
    assert [made for made, _ in run.aside] == [short]


def test_two_recorders_of_one_rank_are_kept() -> None:
    gpu, cpu = dump(0, WORLD, steps(4)), dump(0, WORLD, steps(4), backend="gloo")
    assert len(choose_run([gpu, cpu]).dumps) == 2


def test_a_file_without_a_number_gets_the_rank_that_is_left() -> None:
    named = [dump(rank, WORLD, steps(4)) for rank in (0, 1, 3)]
    nameless = dump(None, WORLD, steps(4))
    run = choose_run([*named, nameless])
    assert nameless.rank == 2
    assert len(run.dumps) == 4


def test_a_number_that_is_in_none_of_the_groups_is_no_rank() -> None:
    odd = dump(977, WORLD, steps(4))
    run = choose_run([odd, dump(0, WORLD, steps(4)), dump(1, WORLD, steps(4))])
    assert odd.rank is None
    assert run.unplaced == [odd]


def test_nothing_is_a_run_too() -> None:
    assert choose_run([]).dumps == []


def test_an_empty_dump_displaces_nobody() -> None:
    good = [dump(rank, WORLD, steps(4)) for rank in range(4)]
    empty = dump(0, WORLD, [])
    empty.mtime_ns = good[0].newest_ns + 100 * HOUR
    run = choose_run([empty, *good])
    assert run.dumps == good


def test_a_number_that_no_world_has_is_not_a_rank() -> None:
    good = [dump(rank, WORLD, steps(4)) for rank in range(4)]
    stray = dump(9_999_999, WORLD, steps(4))
    stray.groups = []
    run = choose_run([*good, stray])
    assert [made.rank for made in run.dumps] == [0, 1, 2, 3]


def test_an_empty_dump_of_a_rank_that_took_part_says_nothing() -> None:
    good = [dump(rank, WORLD, steps(4)) for rank in range(3)]
    empty = dump(3, WORLD, [])
    run = choose_run([*good, empty])
    assert run.dumps == good
    assert [made for made, _ in run.aside] == [empty]
