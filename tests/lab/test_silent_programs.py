"""Programs in many styles, healthy and with one silent fault each: judged by the records of their guards."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.bars
@pytest.mark.parametrize("seed", [1, 2])
def test_healthy_ones_are_left_alone_and_faults_are_named(seed):
    command = [sys.executable, "-m", "tests.jobs.silent_programs", "all", str(seed)]
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False)
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(outcomes) > 40, done.stderr[-2000:]
    assert [outcome for outcome in outcomes if not outcome["right"]] == []
