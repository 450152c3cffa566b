"""Where every rank and group stands."""

from __future__ import annotations

from pathlib import Path

from tests.jobs.pretend import Plan
from tests.jobs.pretend_dumps import read, write
from whichrank.model.findings import Subject
from whichrank.model.verdict import Diagnosis, Position, RankInfo, Verdict
from whichrank.report import load
from whichrank.timeline.assemble import build_case
from whichrank.timeline.case import Case
from whichrank.timeline.collectives import positions


def test_a_standstill(tmp_path: Path) -> None:
    plan = Plan(tp=4, dp=1, fault="stuck", culprit=1, eager=True, lose=1, seed=1)
    written = write(plan, tmp_path)
    case = build_case(read(written.folder))
    states = {info.rank: info.state for info in positions.ranks(case)}
    (lost,) = written.lost
    assert states[1] == "stuck"
    assert {rank for rank, state in states.items() if state == "waiting"} == {0, 2, 3} - {lost}
    assert {wait.rank: wait.waits_for for wait in positions.waits(case) if wait.rank != lost} == {
        rank: tuple(sorted({1, lost})) for rank in (0, 2, 3) if rank != lost
    }
    (diverged,) = [group.diverged for group in positions.groups(case) if group.diverged]
    assert set(diverged.absent) == {1, lost}


def test_nothing_at_all() -> None:
    assert positions.ranks(Case()) == positions.groups(Case()) == positions.waits(Case()) == ()


def test_a_finished_operation_is_not_where_a_rank_is(tmp_path: Path) -> None:
    """It stands behind it, and the report must not say that it is stuck in it."""
    plan = Plan(tp=4, dp=1, fault="stuck", culprit=1, eager=True, seed=1)
    case = build_case(read(write(plan, tmp_path).folder))
    infos = {info.rank: info for info in positions.ranks(case)}
    assert infos[1].state == "stuck"
    assert infos[1].at is None
    assert infos[1].after is not None
    for rank in (0, 2, 3):
        assert infos[rank].state == "waiting"
        assert infos[rank].at is not None
        assert infos[rank].after is None
        assert infos[rank].reached.seq > infos[1].reached.seq
    assert all(info.seen for info in infos.values())


def test_how_old_a_position_is_is_said() -> None:
    stale = RankInfo(1, state="stuck", after=Position("g", 101, "all_reduce"), seen="2026-11-15T00:00:00Z")
    fresh = RankInfo(0, state="waiting", at=Position("g", 102, "all_reduce"), seen="2026-11-15T00:00:42Z")
    verdict = Verdict("hang", "collective-desync", Subject((1,)), (0,), 0.8, "Rank 1 is stuck.")
    text = " ".join("".join(load("text").render(Diagnosis(verdict, ranks=(fresh, stale)))).split())
    assert "stuck after it finished all_reduce 101 of group g (by a dump 42 s older than the newest)" in text
    assert "stuck at all_reduce 101" not in text
