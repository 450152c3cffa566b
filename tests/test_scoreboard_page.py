"""docs/scoreboard.md is made from what `make score` writes: blind figures first, losses included."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT
from whichrank.lab.scoreboard import Answer, Board, Run
from whichrank.lab.truth import Truth

HANG = Truth("hang", "conditional-collective", (2,))
NOBODY = Truth("crash", "disk-full", None)


def board() -> Board:
    made = Board(versions={"torchfrtrace": "torch 2.13.0"})
    made.runs = [
        Run("skipped", "drill", "", "whichrank", HANG, Answer("conditional-collective", (2,)), 3.0, 9.0, 0.5),
        Run("other", "drill", "", "whichrank", HANG, Answer("unknown", ()), 3.0, 9.0, 0.5),
        Run("disk", "drill", "", "whichrank", NOBODY, Answer("disk-full", ())),
        Run("skipped", "drill", "", "torchfrtrace", HANG, Answer(None, (0, 1))),
        Run("other", "drill", "", "torchfrtrace", HANG, Answer("conditional-collective", (2,))),
        Run("disk", "drill", "", "torchfrtrace", NOBODY, Answer(None, ())),
    ]
    made.skipped = [("hot_gpu", "there is no GPU")]
    return made


def test_silence_where_nobody_is_to_blame_is_no_merit() -> None:
    ours, theirs = (board().count(tool).as_json() for tool in ("whichrank", "torchfrtrace"))
    assert (ours["runs"], ours["culprits_known"], ours["exact_culprits"]) == (3, 2, 1)
    assert (theirs["runs"], theirs["culprits_known"], theirs["exact_culprits"]) == (3, 2, 1)


def test_it_tells_blind_figures_first_and_what_was_missed(tmp_path: Path) -> None:
    (tmp_path / "nccl_faults").mkdir()
    for place in (tmp_path, tmp_path / "nccl_faults"):
        (place / "score.json").write_text(json.dumps(board().as_json()))
    record = ROOT / "tests" / "samples" / "blind_rounds.csv"
    tool = [sys.executable, ROOT / "tools" / "scoreboard.py", tmp_path, "--blind", record]
    done = subprocess.run(tool, capture_output=True, text=True, check=True)
    page = done.stdout
    order = ["## Blind", "| logs_round_2 |", "### nccl_faults", "## Live"]
    assert sorted(order, key=page.index) == order
    assert "| logs_round_2 | logs and tickets by somebody who had not seen the rules | 24 of 40 (60 %) |" in page
    assert "| whichrank | 3 | 2 (66 %) | 1 of 2 (50 %) | 0 | 3.0 | 9.0 | 0.5 |" in page
    assert "| torchfrtrace | 3 | 1 (33 %) | 1 of 2 (50 %) | 1 |" in page
    assert "- drill, other: said unknown [], truth conditional-collective [2]" in page
    assert "Where another tool was wholly right and we were not: drill, other." in page
    assert "- hot_gpu: there is no GPU" in page
    assert "torchfrtrace (torch 2.13.0)" in page
