"""`diagnose --source` joins the place of a verdict with what lint says of it."""

from __future__ import annotations

from pathlib import Path

from whichrank.flows.lint.places import explained
from whichrank.model.findings import CodePlace, Subject
from whichrank.model.verdict import Diagnosis, Verdict
from whichrank.report import json as as_json
from whichrank.report import text as as_text
from whichrank.source.excerpts import find_excerpts

PROGRAM = """\
import torch
import torch.distributed as dist


def log(rank, value):
    if rank == 0:
        dist.all_reduce(value)
    dist.barrier()
"""


def excerpts(folder: Path, line: int):
    (folder / "train.py").write_text(PROGRAM)
    return explained(folder, find_excerpts(folder, [CodePlace("/job/train.py", line, "log", 0)]))


def test_the_culprits_line_gets_the_path_that_made_ranks_differ(tmp_path):
    (excerpt,) = excerpts(tmp_path, 7)
    assert excerpt.said[0].startswith("LINT101: Only one rank will call all_reduce under `rank == 0`")
    assert "train.py, line 6: if rank == 0:" in excerpt.said


def test_the_condition_is_a_place_too_and_other_lines_are_left_alone(tmp_path):
    assert excerpts(tmp_path, 6)[0].said
    assert excerpts(tmp_path, 8)[0].said == ()


def test_reports_show_it(tmp_path):
    verdict = Verdict(
        category="hang",
        cause="rank0-only-collective",
        culprits=Subject(ranks=(0,)),
        victims=(1,),
        confidence=0.9,
        summary="Rank 0 is alone.",
    )
    diagnosis = Diagnosis(verdict, excerpts=excerpts(tmp_path, 7))
    assert "LINT101" in "".join(as_text.render(diagnosis))
    assert as_json.as_document(diagnosis)["excerpts"][0]["said"][0].startswith("LINT101")


def test_code_that_does_not_parse_costs_no_diagnosis(tmp_path):
    (tmp_path / "broken.py").write_text("def (:\n")
    assert excerpts(tmp_path, 7)[0].said
