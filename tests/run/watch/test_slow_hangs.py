"""Hangs that hide: a loop that computes forever, and a group that stands while a thread's own group goes on."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.run import small, watched
from tests.run.watched import Done
from tests.together import Together

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.slow,
]


@pytest.fixture(autouse=True)
def nobody_left() -> Iterator[None]:
    yield
    small.end_all()


@pytest.fixture(scope="module")
def jobs(request: pytest.FixtureRequest) -> Iterator[Mapping[str, Done]]:
    def one(fault: str, folder: Path) -> Done:
        command = watched.forked(watched.JOB, fault, world=4)
        return watched.run(command, folder / "out", "--no-history", "--policy", "end", limit_s=240)

    begun = Together(one, ("spin", "beat"), 2, request)
    yield begun
    begun.close()


@pytest.mark.bars
def test_a_loop_without_end(jobs: Mapping[str, Done]) -> None:
    job = jobs["spin"]
    assert job.alarms["suspect"]["silence_s"] < 45, job.alarms
    assert "goes round in a loop" in job.alarms["confirmed"]["why"]
    assert job.verdict["culprits"]["ranks"] == [2]
    assert job.verdict["cause"] in ("rank-stuck-in-user-code", "rank-stuck-in-data-loading")


def test_a_hang_beside_a_group_that_goes_on(jobs: Mapping[str, Done]) -> None:
    job = jobs["beat"]
    assert job.alarms["suspect"]["silence_s"] < 120, job.alarms
    assert job.verdict["culprits"]["ranks"] == [2], job.verdict["summary"]


@pytest.mark.bars
def test_a_job_that_was_not_started_by_us(tmp_path: Path) -> None:
    """All that can be had is /proc and py-spy; the job is watched, the hang noticed, and what lacks is said."""
    out = tmp_path / "out"
    job = subprocess.Popen(small.torchrun(tmp_path), stdout=-3, stderr=-3, text=True, env=watched.environment())
    running = small.Small(job, tmp_path, out)
    try:
        running.until_ready()
        with (tmp_path / "stderr").open("w") as errors:
            command = watched.whichrank("attach", running.pid(0), "--no-history", "--out", out)
            watcher = subprocess.Popen(command, stdout=-3, stderr=errors, text=True, env=watched.environment())
        told = (tmp_path / "stderr").read_text
        running.until("what lacks is told", lambda: "there are no counters of its collectives" in told())
        time.sleep(5)
        assert "makes no progress" not in told()
        running.pause()
        running.until("a verdict", (out / "verdict.json").exists, limit_s=150)
        assert running.process.poll() is None
        os.kill(watcher.pid, 0)
    finally:
        code = running.end()
    assert code == 0
    assert running.unharmed
    assert watcher.wait(60) == 0, told()
    state = json.loads((out / "run.json").read_text())
    assert state["ranks_seen"] == [0, 1]
    assert [alarm["level"] for alarm in state["alarms"]] == ["suspect", "confirmed"]
    verdict = json.loads((out / "verdict.json").read_text())["verdict"]
    assert verdict["culprits"]["ranks"] in ([1], []), "without dumps it may not be known; nobody else is accused"
