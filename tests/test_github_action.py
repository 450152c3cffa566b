"""The GitHub Action by its script: a test that hangs ends with the verdict, in the summary and as a page."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT, command_environment
from tests.run import watched

yaml = pytest.importorskip("yaml")
HERE = ROOT / "recipes" / "github" / "hang"
HANGS = """\
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(40):
    if step == 20 and dist.get_rank() == 1:
        time.sleep(600)
    dist.all_reduce(torch.ones(8))
    time.sleep(0.05)
"""


def act(tmp_path: Path, command: str) -> tuple[subprocess.CompletedProcess[str], dict[str, str], float]:
    """What GitHub does: the step of the action with its variables."""
    step = yaml.safe_load((HERE / "action.yml").read_text())["runs"]["steps"][0]
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "whichrank").write_text(f'#!/bin/sh\nexec {sys.executable} -m whichrank "$@"\n')
    (programs / "whichrank").chmod(0o755)
    files = {name: tmp_path / name.lower() for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
    environment = {
        **command_environment(), "WHICHRANK_RUN": command, "WHICHRANK_OUT": str(tmp_path / "out"),
        "GITHUB_ACTION_PATH": str(HERE), "PATH": f"{programs}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1",
        **{name: str(path) for name, path in files.items()},
    }  # fmt: skip
    begun = time.monotonic()
    done = subprocess.run(
        ["bash", "-c", step["run"]],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    told = {name: path.read_text() if path.exists() else "" for name, path in files.items()}
    return done, told, time.monotonic() - begun


def test_what_ends_well_stays_as_it_is(tmp_path: Path) -> None:
    done, told, _ = act(tmp_path, f"{sys.executable} -c 'print(7)'")
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr
    assert told == {"GITHUB_STEP_SUMMARY": "", "GITHUB_OUTPUT": ""}


@pytest.mark.bars
def test_a_test_that_hangs_ends_with_the_verdict(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "hangs.py").write_text(HANGS)
    launcher = f"{sys.executable} -m torch.distributed.run --nproc_per_node 2 --master_port {watched.free_port()}"
    done, told, seconds = act(tmp_path, f"{launcher} hangs.py")
    assert done.returncode != 0
    assert told["GITHUB_OUTPUT"] == "verdict=rank-stuck-in-user-code\n", done.stderr[-2000:]
    assert "Rank 1" in told["GITHUB_STEP_SUMMARY"]
    assert "::error title=whichrank: rank-stuck-in-user-code::Rank 1" in done.stdout
    assert "<title>" in (tmp_path / "out" / "report.html").read_text()
    assert seconds < 200, "the verdict itself comes within a minute on a machine that is not busy"
