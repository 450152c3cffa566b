"""`trace` from files to answers: recorded jobs, published traces beside HTA's own numbers, and the whole command."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path

import jsonschema
import pytest

from tests.traces import job
from whichrank.cli.main import run
from whichrank.cli.tools.schema import schemas
from whichrank.flows.compare.traces import compare_traces
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.flows.trace.analyse import trace
from whichrank.report.steps import html, markdown, text
from whichrank.report.steps import json as as_json

SAMPLE = Path(__file__).parents[1] / "samples" / "traces" / "gloo_data_4rank"
SHARED = Path(os.environ.get("WHICHRANK_SHARED", Path(__file__).parents[3] / "shared")) / "cases" / "traces_hta"
published = pytest.mark.skipif(not SHARED.is_dir(), reason="the published traces are not here")

# What HTA 0.5.0 answers with HTA_DISABLE_NS_ROUNDING=1: compute, idle and overlap of each rank.
HTA = {
    "ddp2_nccl_meta": {0: (17.66, 77.23, 14.76)},
    "dlrm16_sendrecv": {0: (14.15, 69.44, 1.37)},
    "sampled_world128": {0: (17.71, 53.56, 11.81), 1: (22.57, 54.72, 20.05)},
    "mtia_single": {0: (54.84, 42.22, None)},
}


@published
@pytest.mark.parametrize("name", HTA)
def test_the_shares_are_htas(name):
    report = trace([SHARED / name])
    assert {one.rank for one in report.ranks} == set(HTA[name])
    for one in report.ranks:
        compute, idle, overlap = HTA[name][one.rank]
        assert one.hta["compute_pct"] == pytest.approx(compute, abs=0.1)
        assert one.hta["idle_pct"] == pytest.approx(idle, abs=0.1)
        assert one.hta["overlap_pct"] == (pytest.approx(overlap, abs=0.1) if overlap is not None else None)


@published
@pytest.mark.parametrize("name", sorted(p.name for p in SHARED.iterdir() if p.is_dir()) if SHARED.is_dir() else [])
def test_every_published_trace_gets_an_answer_that_adds_up(name):
    report = trace([SHARED / name])
    assert report.ranks
    for one in report.ranks:
        assert one.steps >= 1
        parts = (one.compute_pct, one.exposed_pct, one.memory_pct, one.idle_pct)
        assert sum(part for part in parts if part is not None) == pytest.approx(100, abs=1e-6)
        assert sum(one.idle_why.values()) == pytest.approx(one.idle_pct, abs=1e-6)
    check(report)


def check(report):
    document = json.loads("".join(as_json.render(report)))
    jsonschema.validate(document, json.loads(schemas()["trace"].read_text(encoding="utf-8")))
    return document


def test_the_recorded_job_names_the_rank_that_waits_for_data():
    report = trace([SAMPLE])
    (late,) = report.stragglers
    assert (late.rank, late.reason, late.steps, late.of_steps) == (2, "data-loader", 5, 5)
    # Without the delay the job needs about 40 ms per step, with it 132 ms.
    assert late.late_us_per_step == pytest.approx(100_000, rel=0.1)
    assert late.cost_us_per_step == pytest.approx(95_000, rel=0.15)
    assert [f.code for f in report.findings] == ["SLOW302"]
    assert report.advice[0].id == "straggler"
    document = check(report)
    assert document["stragglers"][0]["rank"] == 2
    assert "rank 2" in "".join(text.render(report))
    assert "SLOW302" in "".join(markdown.render(report))
    assert "<canvas" in "".join(html.render(report))


def test_diagnose_uses_profiles():
    verdict = diagnose([SAMPLE], jobs=1).verdict
    assert (verdict.category, verdict.cause, verdict.culprits.ranks) == ("slow", "input-bound", (2,))
    assert verdict.victims == (0, 1, 3)


def test_a_folder_without_profiles_is_not_enough(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("nothing")
    assert run(["trace", str(tmp_path)]) == 3
    assert "No profile could be read" in capsys.readouterr().out


def test_the_command(tmp_path, capsys):
    assert run(["trace", str(SAMPLE), "--format", "json", "--quiet"]) == 1
    assert json.loads(capsys.readouterr().out)["ranks"][2]["rank"] == 2
    page = tmp_path / "trace.html"
    assert run(["trace", str(SAMPLE / "rank-0.json.gz"), "--output", str(page), "--quiet"]) == 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_tar_of_profiles(tmp_path):
    archive = shutil.make_archive(str(tmp_path / "profiles"), "tar", SAMPLE)
    assert [late.rank for late in trace([Path(archive)]).stragglers] == [2]


def test_one_damaged_profile_costs_only_itself(tmp_path):
    shutil.copytree(SAMPLE, tmp_path / "job")
    whole = (SAMPLE / "rank-1.json.gz").read_bytes()
    (tmp_path / "job" / "rank-1.json.gz").write_bytes(whole[: len(whole) // 3])
    (tmp_path / "job" / "rank-3.json.gz").write_bytes(b"\x1f\x8b\x08rubbish")
    report = trace([tmp_path / "job"])
    assert 2 in [one.rank for one in report.ranks]
    qualities = {s.path: s.quality for s in report.coverage.sources}
    assert qualities["rank-1.json.gz"] == "partial"
    assert qualities["rank-3.json.gz"] in ("unusable", "ignored")


def test_the_merged_file_is_on_one_clock(tmp_path):
    job(tmp_path / "job", clocks={1: 5_000_000.0, 3: -40.0})
    merged = tmp_path / "all.json.gz"
    out = ["--perfetto", str(merged), "--quiet", "--output", str(tmp_path / "r.txt")]
    assert run(["trace", str(tmp_path / "job"), *out]) == 0
    found = json.loads(gzip.decompress(merged.read_bytes()))["traceEvents"]
    ends = {}
    for event in found:
        if event.get("cat") == "communication":
            ends.setdefault(event["pid"], []).append(event["ts"] + event["dur"])
    assert sorted(ends) == [0, 1, 2, 3]
    for mine in ends.values():
        assert mine == pytest.approx(ends[0], abs=0.01)
    names = {e["args"]["name"] for e in found if e["name"] == "process_name"}
    assert names == {"rank 0", "rank 1", "rank 2", "rank 3"}
    shutil.copy(merged, tmp_path / "job")
    assert len(trace([tmp_path / "job"]).ranks) == 4


def test_two_runs_compared(tmp_path):
    job(tmp_path / "a")
    job(tmp_path / "b", extra=lambda one, _step: one.kernel(2000, "slow") if one.rank == 3 else None)
    found = compare_traces([tmp_path / "a"], [tmp_path / "b"])
    assert found[0].what == "step time"
    assert (found[0].a, found[0].b) == ("3.80 ms", "5.80 ms")
    assert found[1].what == "lateness of rank 3"
    assert found[1].suspicion > 0.9
    assert compare_traces([tmp_path / "a"], [tmp_path / "a"])[1:] == []


def test_names_from_files_can_not_break_out_of_the_page(tmp_path):
    evil = "</script><script>alert(1)</script>\u202e"
    job(tmp_path, extra=lambda one, _step: one.kernel(2000, evil) if one.rank == 3 else None)
    page = "".join(html.render(trace([tmp_path])))
    assert "<script>alert" not in page
    assert "\u202e" not in page


@pytest.mark.parametrize("many", [1, 3])
def test_workers_or_not_the_answer_is_the_same(many, tmp_path):
    job(tmp_path, world=9, extra=lambda one, _step: one.kernel(700, "slow") if one.rank == 4 else None)
    assert [late.rank for late in trace([tmp_path], jobs=many).stragglers] == [4]


@pytest.mark.parametrize("kept", [0.5, 0.9])
def test_what_is_missing_from_a_cut_file_does_not_count_as_idle(tmp_path, kept):
    whole = json.dumps(job(tmp_path / "whole", world=2)[0].document())
    (tmp_path / "cut.json").write_text(whole[: int(len(whole) * kept)])
    report = trace([tmp_path / "cut.json"])
    assert [(one.idle_pct, one.idle_why) for one in report.ranks] == [(None, {})]
    assert not any("Launch" in one.what for one in report.advice)
    assert any("end early" in note for note in report.notes)
    assert "not whole" in "".join(text.render(report))
