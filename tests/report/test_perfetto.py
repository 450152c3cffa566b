"""The trace of a diagnosis, opened by Perfetto's own trace_processor."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conftest import ROOT
from tests.report.trace_processor import asked, opens
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.findings import Subject
from whichrank.model.verdict import Diagnosis, RankInfo, Standing, Verdict, Wait
from whichrank.model.views import Slice, Track
from whichrank.report import perfetto

RANKS = "SELECT name FROM process WHERE name IS NOT NULL ORDER BY pid"
SLICES = """
    SELECT p.name AS who, t.name AS track, s.category AS kind, s.name AS name, s.ts AS ts, s.dur AS dur,
           extract_arg(s.arg_set_id, 'args.code') AS code
    FROM slice s JOIN thread_track k ON s.track_id = k.id JOIN thread t USING (utid) JOIN process p USING (upid)
    ORDER BY s.ts
"""
FLOWS = """
    SELECT p.name AS waits, a.name AS at, q.name AS awaited, b.name AS there
    FROM flow f
    JOIN slice a ON f.slice_out = a.id JOIN thread_track k ON a.track_id = k.id
    JOIN thread t USING (utid) JOIN process p USING (upid)
    JOIN slice b ON f.slice_in = b.id JOIN thread_track l ON b.track_id = l.id
    JOIN thread u ON u.utid = l.utid JOIN process q ON q.upid = u.upid
"""
INSTANTS = """
    SELECT s.name AS name, s.ts AS ts, p.name AS who, extract_arg(s.arg_set_id, 'args.quote') AS quote
    FROM slice s LEFT JOIN process_track k ON s.track_id = k.id LEFT JOIN process p USING (upid)
    WHERE s.category IN ('finding', 'kernel', 'job') ORDER BY s.ts
"""
HANG = Verdict("hang", "unknown", Subject(), (), 0.5, "a hang")


def opened(told, folder: Path) -> list[list[dict]]:
    """Ranks, slices, flows and instants as Perfetto has them."""
    trace = folder / "trace.json"
    trace.write_text("".join(perfetto.render(told)), encoding="utf-8")
    return asked(trace, RANKS, SLICES, FLOWS, INSTANTS)


@opens
def test_ranks_are_processes_collectives_slices_waits_arrows_and_proof_instants(tmp_path):
    told = diagnose([ROOT / "examples" / "skipped_collective"], views=True)
    ranks, slices, flows, instants = opened(told, tmp_path)
    assert [r["name"] for r in ranks] == ["rank 0", "rank 1", "rank 2 ← the verdict", "rank 3"]
    unfinished = {s["who"]: s for s in slices if s["kind"] == "unfinished"}
    assert {who: s["name"] for who, s in unfinished.items()} == {
        "rank 0": "all_reduce 5", "rank 1": "all_reduce 5", "rank 2 ← the verdict": "all_gather 4",
        "rank 3": "all_reduce 5",
    }  # fmt: skip
    assert unfinished["rank 0"]["track"] == "default_pg"
    assert "train.py:25" in unfinished["rank 0"]["code"]
    assert len([s for s in slices if s["kind"] == "collective"]) == 28
    arrows = {(f["waits"], f["awaited"]) for f in flows if f["at"] == "all_reduce 5"}
    assert arrows == {(f"rank {rank}", "rank 2 ← the verdict") for rank in (0, 1, 3)}
    assert {i["name"] for i in instants} == {"COLL101 conditional-collective"}
    assert any("all_gather #4" in i["quote"] and i["who"] == "rank 2 ← the verdict" for i in instants)


@opens
def test_a_rank_outside_of_collectives_and_one_without_any_are_drawn(tmp_path):
    """The usual hang: the rank that is waited for finished its last collective long ago; or it recorded nothing."""
    done, open_ = Slice("dp", 7, "all_reduce", 1_000, 2_000), Slice("dp", 8, "all_reduce", 5_000, None)
    told = Diagnosis(
        HANG,
        tracks=(Track((0,), (done, open_)), Track((1,), (done,))),
        ranks=(RankInfo(0, state="waiting"), RankInfo(1, state="running"), RankInfo(2, state="dead")),
        waits=(Wait(0, "dp", 8, "all_reduce", (1, 2)), Wait(1, "dp", 8, "all_reduce", (2,))),
        standings=(Standing("loader.py:40", "fetch_shard", (1,)),),
    )
    ranks, slices, flows, _ = opened(told, tmp_path)
    assert len(ranks) == 3
    outside = {s["who"].split(" ←")[0]: s["name"] for s in slices if s["kind"] == "outside"}
    assert outside == {"rank 1": "fetch_shard at loader.py:40", "rank 2": "dead"}
    assert {(f["waits"].split(" ←")[0], f["awaited"].split(" ←")[0]) for f in flows} == {
        ("rank 0", "rank 1"), ("rank 1", "rank 2"),
    }  # fmt: skip


@opens
def test_collectives_that_overlap_are_drawn_side_by_side(tmp_path):
    """As NCCL runs the buckets of DDP: the next is issued before the last is done."""
    slices = tuple(Slice("dp", i, "all_reduce", 1_000 * i, 1_000 * i + 2_500) for i in range(1, 6))
    stuck = (Slice("dp", 6, "all_reduce", 6_000, None), Slice("dp", 7, "all_reduce", 7_000, None))
    told = Diagnosis(
        HANG,
        tracks=(Track((0,), (*slices, *stuck)), Track((1,), slices)),
        waits=(Wait(0, "dp", 6, "all_reduce", (1,)),),
    )
    _, drawn, flows, _ = opened(told, tmp_path)
    assert [(f["at"], f["awaited"]) for f in flows] == [("all_reduce 6", "rank 1")], "not the last that was issued"
    drawn = [s for s in drawn if s["who"] == "rank 0"]
    assert [(s["name"], s["dur"]) for s in drawn[:5]] == [(f"all_reduce {i}", 2_500) for i in range(1, 6)]
    assert drawn[5]["kind"] == "unfinished"
    assert {s["track"].split(",")[0] for s in drawn} == {"dp"}


@opens
def test_a_crash_without_any_collective_is_its_events(tmp_path):
    log = tmp_path / "job" / "train.log"
    log.parent.mkdir()
    log.write_text("2026-03-01 10:00:01 [rank1]: RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    told = diagnose([log.parent], views=True)
    ranks, _, _, instants = opened(told, tmp_path)
    assert [r["name"].split(" ←")[0] for r in ranks] == ["rank 1"]
    assert instants
    assert "out of memory" in instants[0]["quote"]


@opens
def test_what_happened_on_hosts_stands_beside_the_ranks(tmp_path):
    job = tmp_path / "job"
    job.mkdir()
    (job / "node3.dmesg").write_text(
        "2026-03-01T10:16:31,002000+00:00 NVRM: Xid (PCI:0000:5d:00): 79, pid=4242, GPU has fallen off the bus.\n"
        "2026-03-01T10:16:40,000000+00:00 mlx5_core 0000:3b:00.0 ens3f0np0: Link down\n"
    )
    work = "WorkNCCL(SeqNum=8, OpType=ALLREDUCE, NumelIn=16, NumelOut=16, Timeout(ms)=600000)"
    timed_out = f"Watchdog caught collective operation timeout: {work} ran for 600029 milliseconds before timing out."
    prefix = "[rank5]:[E0301 10:26:31.118092703 ProcessGroupNCCL.cpp:632] [Rank 5]"
    (job / "train.log").write_text(f"{prefix} {timed_out}\n")
    ranks, _, _, instants = opened(diagnose([job], views=True), tmp_path)
    assert "host node3" in [r["name"] for r in ranks]
    at = {i["name"]: i["who"].split(" ←")[0] for i in instants}
    assert [who for name, who in at.items() if "timed out" in name or "COLL" in name] == ["rank 5"]
    assert {who for name, who in at.items() if "fell" in name or "gpu" in name.lower() or "link" in name} == {
        "host node3"
    }


@opens
def test_a_thousand_ranks_and_hostile_words(tmp_path):
    hostile = 'x"}]}\\ \x00 </script> \u202e " \n {"ph":"X"}'
    same = tuple(Slice(hostile, i, hostile, i * 1_000, i * 1_000 + 500, hostile) for i in range(1, 20))
    late = Slice("dp", 21, "barrier", 30_000, None)
    told = Diagnosis(
        HANG,
        tracks=(Track(tuple(r for r in range(1024) if r != 5), (*same, late)), Track((5,), same)),
        waits=tuple(Wait(r, "dp", 21, "barrier", (5,)) for r in range(1024) if r != 5),
    )
    ranks, slices, flows, _ = opened(told, tmp_path)
    assert len(ranks) == 2
    assert len([s for s in slices if s["kind"] == "collective"]) == 38
    assert [f["there"] for f in flows] == ["awaited by 1,023 ranks (0-4, 6-1023)"]


def test_a_diagnosis_of_nothing_is_still_a_trace():
    told = Diagnosis(HANG)
    assert json.loads("".join(perfetto.render(told)))["traceEvents"] == []
