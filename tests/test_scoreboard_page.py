"""docs/scoreboard.md is made from what `make score` writes, losses included."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT
from whichrank.lab.scoreboard import Answer, Board, Run
from whichrank.lab.truth import Truth


def test_it_tells_blind_figures_first_and_what_was_missed(tmp_path: Path) -> None:
    truth = Truth("hang", "conditional-collective", (2,))
    board = Board()
    board.runs = [
        Run("skipped", "drill", "", "whichrank", truth, Answer("conditional-collective", (2,)), 3.0, 9.0),
        Run("other", "drill", "", "whichrank", truth, Answer("unknown", ()), 3.0, 9.0),
        Run("skipped", "drill", "", "torchfrtrace", truth, Answer(None, (0, 1))),
    ]
    board.skipped = [("hot_gpu", "there is no GPU")]
    (tmp_path / "blind").mkdir()
    for place in (tmp_path, tmp_path / "blind"):
        (place / "score.json").write_text(json.dumps(board.as_json()))
    tool = [sys.executable, ROOT / "tools" / "scoreboard.py", tmp_path, "--blind", tmp_path / "blind"]
    done = subprocess.run(tool, capture_output=True, text=True, check=True)
    page = done.stdout
    assert page.index("## Blind") < page.index("### Blind: blind") < page.index("## Drills")
    assert "| whichrank | 2 | 1 (50 %) | 1 (50 %) | 0 | 3.0 | 9.0 |" in page
    assert "- drill, other: said unknown [], truth conditional-collective [2]" in page
    assert "- hot_gpu: there is no GPU" in page
