"""Flight-recorder dumps where there is no profile: arrivals, and durations where the recorder measured them."""

from __future__ import annotations

import json

import pytest

from tests.traces import job
from whichrank.flows.trace.analyse import trace

BEGUN = 1_794_701_201_000_000_000
STEP_US, OPS = 200_000, 3


def entry(number, created_us, took_us, size):
    return {
        "record_id": number, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": number + 1,
        "p2p_seq_id": 0, "op_id": number + 1, "profiling_name": "nccl:all_reduce", "is_p2p": False,
        "time_created_ns": BEGUN + round(created_us * 1000), "time_discovered_started_ns": 0,
        "time_discovered_completed_ns": 0, "duration_ms": None if took_us is None else took_us / 1000,
        "input_sizes": [[size]], "input_dtypes": ["Float"], "output_sizes": [[size]], "output_dtypes": ["Float"],
        "state": "completed", "retired": True, "timeout_ms": 600_000, "frames": [],
    }  # fmt: skip


def dumps(folder, *, late=None, late_us=0, timed=False, ahead=None, ahead_us=0, ops=OPS, steps=10, ranks=4):
    """Every step three collectives at once; the late rank comes `late_us` after the others to the first of them."""
    folder.mkdir(exist_ok=True)
    for rank in range(ranks):
        shift = ahead_us if rank == ahead else 0
        entries = []
        for step in range(steps):
            for place in range(ops):
                arrives = step * STEP_US + (late_us if rank == late or place else 0) + place * 2000 + 40 * rank
                ends = step * STEP_US + late_us + place * 2000 + 1500
                took = ends - arrives if timed else None
                entries.append(entry(len(entries), arrives + shift, took, 1024 << place))
        members = str(list(range(ranks)))
        top = {"version": "2.10", "entries": entries, "pg_config": {"0": {"name": "0", "desc": "", "ranks": members}}}
        (folder / f"fr_trace_rank_{rank}.json").write_text(json.dumps(top))
    return trace([folder])


@pytest.mark.parametrize("timed", [True, False])
def test_the_late_rank_is_named_and_nothing_is_said_of_compute(tmp_path, timed):
    report = dumps(tmp_path / "dumps", late=2, late_us=60_000, timed=timed)
    (found,) = report.stragglers
    assert (found.rank, found.reason, found.cost_us_per_step) == (2, "unknown", None)
    assert found.late_us_per_step == pytest.approx(60_000, rel=0.05)
    assert report.step_us == pytest.approx(STEP_US, rel=0.01)
    assert {one.compute_pct for one in report.ranks} == {one.idle_pct for one in report.ranks} == {None}
    assert [share.per_step for share in report.collectives] == pytest.approx([1] * OPS, rel=0.2)
    assert {share.time_us is None for share in report.collectives} == {not timed}
    assert report.advice == ()


@pytest.mark.parametrize("timed", [True, False])
def test_equal_ranks_are_not_accused(tmp_path, timed):
    report = dumps(tmp_path / "dumps", timed=timed)
    assert report.matched > 20
    assert report.stragglers == ()


@pytest.mark.parametrize("timed", [True, False])
def test_a_clock_that_is_ahead_is_not_lateness(tmp_path, timed):
    assert dumps(tmp_path / "dumps", ahead=1, ahead_us=80_000, timed=timed).stragglers == ()


def test_a_few_calls_that_never_repeat_accuse_nobody(tmp_path):
    assert dumps(tmp_path / "dumps", late=2, late_us=60_000, steps=1).stragglers == ()


def test_profiles_are_used_where_there_are_any(tmp_path):
    job(tmp_path, world=4)
    assert dumps(tmp_path, late=2, late_us=60_000).ranks[0].compute_pct is not None
