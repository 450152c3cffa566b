"""The scoreboard counts what it says it counts."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.conftest import ROOT, command_environment


@pytest.mark.parametrize(
    ("truth", "line"),
    [
        (
            "cause: conditional-collective\nculprit_ranks: [2]\n",
            "1 cases: cause right 1, ranks exact 1, innocents accused 0",
        ),
        (
            "cause: straggler\nculprit_ranks: [1]\n",
            "1 cases: cause right 0, ranks exact 0, innocents accused 1",
        ),
        (
            "cause: other\naccept: [conditional-collective]\n",
            "1 cases: cause right 1, ranks exact 1, innocents accused 0",
        ),
    ],
)
def test_score(tmp_path, example, truth, line):
    case = tmp_path / "case"
    shutil.copytree(example, case)
    (case / "truth.yaml").write_text(truth)
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "score.py", tmp_path],
        capture_output=True,
        text=True,
        timeout=60,
        env=command_environment(),
        check=True,
    )
    assert done.stdout.splitlines()[-1] == line
