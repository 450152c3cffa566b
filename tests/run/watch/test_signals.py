"""Signals reach a watched job as they would reach it unwatched: once, and with the same end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.run import watched
from tests.run.looks import away, play, rank, steady
from tests.run.terminal import Terminal
from whichrank.run.watch.alarm import Alarm
from whichrank.run.watch.watcher import Watcher

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
        assert job.process.wait(120) == 5
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
    out, errors = job.communicate(timeout=120)
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


def test_ranks_that_end_when_asked_do_not_hang() -> None:
    """The others wait for a rank that cleans up; a silence from before the request counts."""
    for silent_s, obeys in ((0.5, True), (9.0, False)):
        alarm = Alarm()
        steady(alarm)
        play(alarm, 20, silent_s, lambda _t: [*(rank(r, 300, waiting=True) for r in range(1, 4)), away(0, 300)])
        watcher = SimpleNamespace(record=SimpleNamespace(leaving=True, alarm=alarm), _left_s=None)
        assert Watcher._obeys(watcher, 20 + silent_s) is obeys
        assert Watcher._obeys(watcher, 40 + silent_s) is obeys
        assert watcher._left_s == 20 + silent_s


ENDS_SLOWLY = """
import os, signal, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
def clean_up(*_):
    time.sleep(25)
    os._exit(0)
signal.signal(signal.SIGTERM, clean_up if dist.get_rank() == 1 else signal.SIG_IGN)
for step in range(10_000):
    dist.all_reduce(torch.ones(4))
    if step == 100:
        print("ready", flush=True)
    time.sleep(0.02)
"""


@pytest.mark.bars
def test_a_job_that_ends_slowly(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(ENDS_SLOWLY)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
    launcher += ["--master_port", str(watched.free_port()), str(script)]
    command = watched.whichrank("run", "--no-history", "--out", tmp_path / "out", "--", *launcher)
    job = subprocess.Popen(command, stdout=-1, stderr=-1, text=True, env=watched.environment())
    assert job.stdout is not None
    assert job.stdout.readline() == "ready\n"
    time.sleep(1)
    job.send_signal(signal.SIGTERM)
    _, errors = job.communicate(timeout=120)
    assert "makes no progress" not in errors
