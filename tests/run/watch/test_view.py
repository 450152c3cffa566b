"""`watch` in a real terminal: narrow, beside a job that hangs, goes on and ends."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.run import small, watched
from tests.run.terminal import Terminal

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def jobs() -> Iterator[list[small.Small]]:
    started: list[small.Small] = []
    yield started
    for job in started:
        if job.process.poll() is None:
            job.process.send_signal(signal.SIGTERM)
            job.process.wait(60)


@pytest.fixture
def job(jobs: list[small.Small], tmp_path_factory: pytest.TempPathFactory) -> small.Small:
    """One job for all looks, and a new one after it has ended."""
    if not jobs or jobs[-1].process.poll() is not None:
        jobs.append(small.start(tmp_path_factory.mktemp("viewed"), "--quiet"))
    jobs[-1].until_ready()
    return jobs[-1]


def look(job: small.Small, columns: int) -> Terminal:
    return Terminal(watched.whichrank("watch", job.out, "--interval", "0.5"), columns)


def test_a_narrow_terminal_and_a_key_to_leave(job: small.Small) -> None:
    view = look(job, 60)
    try:
        view.read_until("no alarm so far")
        assert "2 ranks" in view.plain
        assert "collectives per second" in view.plain
        assert all(len(line) <= 60 for line in view.plain.splitlines()), view.plain
        os.write(view.end, b"\x03")
        assert view.process.wait(120) == 0
        assert "Traceback" not in view.plain
    finally:
        view.close()
    assert job.process.poll() is None, "the job goes on"


def test_without_a_terminal_one_look(job: small.Small) -> None:
    done = subprocess.run(
        watched.whichrank("watch", job.out), capture_output=True, text=True, env=watched.environment(), timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[1:4]] == ["rank", "0", "1"]
    assert "\x1b" not in done.stdout


def test_who_is_late_and_where(job: small.Small) -> None:
    view = look(job, 120)
    try:
        view.read_until("collectives per second")
        job.pause()
        view.read_until(" rest")
        view.read_until("suspect: rank 1 does nothing while others wait")
        view.read_until("last verdict: ")
        (job.folder / "pause").unlink()
    finally:
        view.close()
    late = [line.split() for line in view.plain.splitlines() if line.strip().startswith("1 ") and "rest" in line]
    assert any("".join(line).startswith("1in") for line in late), "what it does is said"
    assert any(float(line[5]) > 2 for line in late if len(line) > 7), late


def test_the_job_ends_meanwhile(job: small.Small) -> None:
    view = look(job, 80)
    try:
        view.read_until("collectives per second")
        assert job.end() == 0
        view.read_until("the job has ended with code 0")
        assert view.process.wait(120) == 0
    finally:
        view.close()
    done = subprocess.run(
        watched.whichrank("watch", job.out), capture_output=True, text=True, env=watched.environment(), check=False
    )
    assert done.returncode == 2
    assert "this job has ended" in done.stderr


def test_no_folder_of_a_job(tmp_path: Path) -> None:
    done = subprocess.run(
        watched.whichrank("watch", tmp_path), capture_output=True, text=True, env=watched.environment(), check=False
    )
    assert done.returncode == 2
    assert "not the folder of a watched job" in done.stderr
