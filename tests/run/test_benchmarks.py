"""What is wanted of `run` on a quiet machine, by the benchmarks that measure it: part of `make bars`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
RUNS = os.environ.get("WHICHRANK_RUNS", "3")
"""Of each kind of hang; 20 take two hours."""


@pytest.mark.bars
@pytest.mark.parametrize("words", [("hang_to_verdict.py", RUNS), ("step_overhead.py", "6"), ("run_overhead.py", "6")])
def test_within_its_bar(words: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / words[0], words[1]], capture_output=True, text=True, check=False
    )  # fmt: skip
    with capsys.disabled():
        sys.stdout.write("\n" + "\n".join(done.stdout.splitlines()[-9:]) + "\n")
    assert done.returncode == 0, done.stdout + done.stderr
