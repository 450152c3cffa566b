"""Where every rank and group stands."""

from __future__ import annotations

from pathlib import Path

from tests.jobs.pretend import Plan
from tests.jobs.pretend_dumps import read, write
from whichrank.timeline.case import Case, build_case
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
