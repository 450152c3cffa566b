"""Signals reach a watched job as they would reach it unwatched: once, and with the same end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.run import watched
from tests.run.terminal import Terminal

pytestmark = pytest.mark.slow
COUNTS = """
import signal, sys, time
heard = []
signal.signal(signal.SIGINT, lambda number, _frame: heard.append(number))
print("ready", flush=True)
while not heard:
    time.sleep(0.05)
time.sleep(1.5)
print(f"heard {len(heard)} times, cleaning up", flush=True)
sys.exit(5)
"""


def test_a_key_is_heard_once(tmp_path: Path) -> None:
    """The terminal tells the job itself: it is not told on."""
    command = watched.whichrank("run", "--no-history", "--out", tmp_path, "--", sys.executable, "-c", COUNTS)
    job = Terminal(command, 100)
    try:
        job.read_until("ready")
        os.write(job.end, b"\x03")
        job.read_until("heard 1 times, cleaning up")
        assert job.process.wait(30) == 5
        assert "Traceback" not in job.plain
    finally:
        job.close()
    assert not (tmp_path / "verdict.json").exists(), "who ends the job by hand asks for no verdict"


def test_a_signal_to_the_watcher_is_told_on_once(tmp_path: Path) -> None:
    command = watched.whichrank("run", "--no-history", "--out", tmp_path, "--", sys.executable, "-c", COUNTS)
    job = subprocess.Popen(command, stdout=-1, stderr=-1, text=True, env=watched.environment())
    assert job.stdout is not None
    assert job.stdout.readline() == "ready\n"
    job.send_signal(signal.SIGINT)
    out, errors = job.communicate(timeout=30)
    assert (job.returncode, out) == (5, "heard 1 times, cleaning up\n")
    assert errors == ""


def test_a_job_that_a_key_ends(tmp_path: Path) -> None:
    """Python's own way: KeyboardInterrupt, and the end by the signal itself."""
    code = "import time; print('ready', flush=True); time.sleep(60)"
    command = watched.whichrank("run", "--no-history", "--out", tmp_path, "--", sys.executable, "-c", code)
    job = Terminal(["sh", "-c", 'trap : INT; "$@"; echo "status $?"', "sh", *command], 100)
    try:
        job.read_until("ready")
        os.write(job.end, b"\x03")
        job.read_until(f"status {128 + signal.SIGINT}")
        job.read_until("KeyboardInterrupt")
        assert job.plain.count("KeyboardInterrupt") == 1
    finally:
        job.close()
