"""Who is late, why, and what it costs, on constructed profiles whose truth is exact."""

from __future__ import annotations

import json

import pytest

from tests.traces import Rank, job, meet
from whichrank.flows.trace.analyse import read_profiles, trace
from whichrank.records.profiles.steps import WAIT


def test_equal_ranks_have_no_straggler(tmp_path):
    job(tmp_path)
    report = trace([tmp_path])
    assert report.stragglers == ()
    assert report.findings == ()
    assert report.replay_error_pct == pytest.approx(0, abs=0.5)


@pytest.mark.parametrize(
    ("doing", "reason", "name"),
    [
        (lambda one: one.kernel(2000, "slow_kernel"), "compute", "slow_kernel"),
        (
            lambda one: one.host_time(2000, "enumerate(DataLoader)#_Iter.__next__"),
            "data-loader",
            "enumerate(DataLoader)",
        ),
        (lambda one: one.host_time(2000, "Python GC"), "garbage-collection", "garbage"),
        (lambda one: one.host_time(2000, "torch.save (checkpoint)"), "checkpoint", "checkpoint"),
        (lambda one: one.host_time(2000, "aten::foo", "cpu_op"), "host", "host"),
        (lambda one: one.host_time(2000), "host", "does not show"),
    ],
)
def test_the_late_rank_its_reason_and_its_cost(tmp_path, doing, reason, name):
    job(tmp_path, world=8, extra=lambda one, _step: doing(one) if one.rank == 5 else None)
    report = trace([tmp_path])
    (late,) = report.stragglers
    assert (late.rank, late.reason, late.steps, late.of_steps) == (5, reason, 4, 4)
    assert name in late.doing
    assert late.late_us_per_step == pytest.approx(2000, rel=0.02)
    assert late.cost_us_per_step == pytest.approx(2000, rel=0.02)
    (finding,) = report.findings
    assert finding.subject.ranks == (5,)
    assert finding.cause == ("input-bound" if reason == "data-loader" else "straggler")
    assert set(finding.victims) == {0, 1, 2, 3, 4, 6, 7}


def test_clocks_that_differ_by_seconds_are_aligned(tmp_path):
    clocks = {0: 0.0, 1: 3_000_000.0, 2: -7_500_000.0, 3: 12.5}
    job(tmp_path, extra=lambda one, _step: one.kernel(900, "slow") if one.rank == 2 else None, clocks=clocks)
    report = trace([tmp_path])
    assert [late.rank for late in report.stragglers] == [2]
    offsets = {one.rank: one.clock_offset_us for one in report.ranks}
    assert offsets[1] - offsets[0] == pytest.approx(3_000_000, abs=0.1)
    assert offsets[2] - offsets[0] == pytest.approx(-7_500_000, abs=0.1)


def test_lateness_that_other_work_hides_costs_nothing(tmp_path):
    job(tmp_path, extra=lambda one, _step: one.kernel(1500, "slow") if one.rank == 1 else None, wait=False)
    report = trace([tmp_path])
    # All others compute 3 ms beside the collective; rank 1 only makes the collective start later.
    assert [(late.rank, late.reason) for late in report.stragglers] == [(1, "compute")]
    hidden = [Rank(r, 4) for r in range(4)]
    for step in range(4):
        for one in hidden:
            begun = one.now
            one.kernel(1000 + (800 if one.rank == 1 else 0))
        meet(hidden, 100, wait=False)
        for one in hidden:
            one.kernel(4000 - (800 if one.rank == 1 else 0), "other")
            one.step(step, begun - 600, one.now - 610)
    for one in hidden:
        one.write(tmp_path / "hidden")
    report = trace([tmp_path / "hidden"])
    assert all((late.cost_us_per_step or 0) < 10 for late in report.stragglers)
    assert report.findings == ()


def test_a_rank_that_others_hold_up_is_not_accused(tmp_path):
    """Two pairs and a group of all: rank 0 is slow, its partner 1 comes late to the large group because of it."""
    ranks = [Rank(r, 4) for r in range(4)]
    for step in range(5):
        begun = {one.rank: one.now for one in ranks}
        for one in ranks:
            one.kernel(1000 + (1500 if one.rank == 0 else 0))
        meet(ranks[:2], 50, **{"Process Group Name": "1"})
        meet(ranks[2:], 50, **{"Process Group Name": "2"})
        for one in ranks:
            one.kernel(500)
        meet(ranks, 100)
        for one in ranks:
            one.kernel(100)
            one.step(step, begun[one.rank] - 600, one.now - 610)
    for one in ranks:
        one.write(tmp_path)
    report = trace([tmp_path])
    assert [late.rank for late in report.stragglers] == [0]


def test_one_step_with_a_checkpoint_is_told(tmp_path):
    def save(one, step):
        if one.rank == 0 and step == 2:
            one.host_time(30_000, "torch.save (checkpoint)")

    job(tmp_path, steps=6, extra=save)
    (late,) = trace([tmp_path]).stragglers
    assert (late.rank, late.reason, late.steps, late.of_steps) == (0, "checkpoint", 1, 6)
    assert late.late_us_per_step == pytest.approx(30_000 / 6, rel=0.02)


def test_threads_that_note_a_collective_late_do_not_hide_the_wait(tmp_path):
    """Gloo on a busy host: its thread is scheduled 2 ms after the main one began to wait, and 2 ms after it goes on."""
    steps, late, base = 5, 100_000, 30_000
    for rank in range(4):
        events, now = [], 0.0

        def span(cat, name, start, length, tid=1, events=events):
            events.append({"ph": "X", "cat": cat, "name": name, "pid": 9, "tid": tid, "ts": start, "dur": length})

        for step in range(steps):
            begun, work = now, base + (late if rank == 2 else 0)
            span("cpu_op", "aten::mm", now, work)
            ready, met = now + work, begun + base + late
            span("cpu_op", "gloo:all_reduce", ready + 2000, met + 4000 - ready, tid=2)
            now = met + 4000
            span("cpu_op", "aten::add_", now, 500)
            now += 500
            span("user_annotation", f"ProfilerStep#{step}", begun, now - begun)
        info = {"backend": "gloo", "rank": rank, "world_size": 4}
        document = {"schemaVersion": 1, "distributedInfo": info, "traceEvents": events}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(document))
    (found,) = trace([tmp_path]).stragglers
    assert (found.rank, found.reason) == (2, "compute")
    assert found.cost_us_per_step == pytest.approx(late, rel=0.05)


@pytest.mark.parametrize(("over_ms", "waited"), [(8, False), (99, True)])
def test_a_host_that_sleeps_while_a_collective_ends_does_not_wait_for_it(tmp_path, over_ms, waited):
    """Gloo moves data on a thread of its own; the main thread goes on at 100 ms, whenever that is over."""

    def event(category, name, tid, begun, over):
        return {
            "ph": "X",
            "cat": category,
            "name": name,
            "pid": 1,
            "tid": tid,
            "ts": begun * 1e3,
            "dur": (over - begun) * 1e3,
        }

    for rank in range(2):
        events = [
            event("user_annotation", "ProfilerStep#1", 1, 0, 110),
            event("cpu_op", "aten::mm", 1, 1, 5),
            event("user_annotation", "gloo:all_reduce", 2, 5, over_ms),
            event("cpu_op", "aten::mm", 1, 100, 105),
        ]
        document = {"traceEvents": events, "distributedInfo": {"rank": rank, "world_size": 2, "backend": "gloo"}}
        (tmp_path / f"rank-{rank}.json").write_text(json.dumps(document))
    ranks, _ = read_profiles([tmp_path])
    assert [bool((one.links.kind == WAIT).any()) for one in ranks] == [waited, waited]
