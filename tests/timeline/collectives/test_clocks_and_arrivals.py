"""Clocks aligned by the collectives themselves, and who is steadily late."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.jobs.pretend import Plan
from tests.jobs.pretend_dumps import HOST, read, write
from tests.timeline.by_hand import Did, dump, lined_up
from whichrank.timeline.clocks.collectives import align
from whichrank.timeline.collectives.arrivals import Late, find_late
from whichrank.timeline.collectives.lineup import Lineup

WORLD = {"0": (0, 1, 2, 3)}
SECOND = 10**9


def job(
    late_ms: dict[int, float],
    *,
    count: int = 40,
    backend: str = "nccl",
    skews: tuple[int, ...] = (0, 0, 0, 0),
    since: int = 0,
) -> Lineup:
    """Four ranks that meet three times every 20 ms; some come later, all leave half a millisecond after the last."""
    dumps = []
    for rank in range(4):
        entries = []
        for n in range(count):
            late = late_ms if n >= since else {}
            delay = late.get(rank, 0.0)
            end = 20 * n + max([*late.values(), 0.0]) + 0.5
            at = 20 * n + delay
            entries.append(Did("0", "all_reduce", 3 * n + 1, at_ms=at, took_ms=end - at))
            entries.append(Did("0", "all_gather", 3 * n + 2, at_ms=end + 0.1, took_ms=0.5))
            entries.append(Did("0", "all_gather", 3 * n + 3, at_ms=end + 0.7, took_ms=0.5))
        dumps.append(dump(rank, WORLD, entries, backend=backend, offset_ns=skews[rank]))
    return lined_up(*dumps)


def late_ranks(lineup: Lineup) -> Late | None:
    return find_late(lineup, align(lineup))


@pytest.mark.parametrize("skew", [0, 5 * SECOND])
def test_clocks_of_hosts_are_found(skew: int) -> None:
    lineup = job({}, skews=(0, skew, -skew, 0))
    clocks = align(lineup)
    for rank, truth in enumerate((0, skew, -skew, 0)):
        clock = clocks[rank]
        assert clock.uncertain_ns is not None
        assert abs(clock.ahead_ns - truth) <= clock.uncertain_ns
        assert clock.uncertain_ns < 2_000_000


def test_clocks_of_a_job_in_many_groups(tmp_path: Path) -> None:
    """Ranks that never meet the first one directly are aligned through others."""
    plan = Plan(tp=4, dp=4, eager=True, skew_ns=3 * SECOND, seed=4)
    dumps = read(write(plan, tmp_path).folder)
    truth = {d.rank: int(d.created_ns[0]) for d in dumps}
    clocks = align(lined_up(*dumps))
    for rank, clock in clocks.items():
        apart = truth[rank] - truth[0]
        assert abs(clock.ahead_ns - apart) < 5_000_000, rank
    assert len({truth[rank] // SECOND for rank in range(0, 16, HOST)}) > 1


def test_the_late_rank_waits_least() -> None:
    late = late_ranks(job({2: 8.0}))
    assert late is not None
    assert (late.ranks, late.measure, late.operations) == ((2,), "end", 120)
    assert 0.3 < late.share < 0.5
    assert late.waits_ns < 1_000_000 < late.others_wait_ns


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_who_became_late_on_the_way(backend: str) -> None:
    found = late_ranks(job({1: 12.0}, count=60, since=24, backend=backend))
    assert found is not None
    assert found.ranks == (1,)


def test_who_became_late_only_just_now_may_be_on_time_again() -> None:
    assert late_ranks(job({1: 12.0}, count=60, since=55)) is None


def test_skewed_clocks_don_t_make_a_straggler() -> None:
    assert late_ranks(job({}, skews=(0, SECOND, 0, 0))) is None


def test_gloo_notes_no_ends_so_arrivals_are_compared() -> None:
    late = late_ranks(job({1: 9.0}, backend="gloo"))
    assert late is not None
    assert (late.ranks, late.measure) == ((1,), "arrival")


def test_nobody_is_late_in_a_few_operations() -> None:
    assert late_ranks(job({2: 8.0}, count=7)) is None


def test_everybody_equally_slow_is_no_straggler() -> None:
    assert late_ranks(job({0: 8.0, 1: 8.0, 2: 8.0, 3: 8.0})) is None


def test_one_long_pause_is_no_straggler() -> None:
    entries = [Did("0", "all_reduce", n + 1, at_ms=20 * n, took_ms=0.5) for n in range(40)]
    paused = [replace(e, took_ms=900.0) if e.seq == 20 else e for e in entries]
    lineup = lined_up(*(dump(rank, WORLD, entries if rank == 2 else paused) for rank in range(4)))
    assert late_ranks(lineup) is None


def test_a_straggler_in_a_pipeline(tmp_path: Path) -> None:
    """Other stages wait for it in receives, not in collectives."""
    plan = Plan(tp=2, dp=2, pp=3, steps=16, eager=True, fault="straggler", culprit=5, seed=3)
    late = late_ranks(lined_up(*read(write(plan, tmp_path).folder)))
    assert late is not None
    assert late.ranks == (5,)
