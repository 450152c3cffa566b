"""How long processes are waited for when they were asked."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from whichrank.evidence.collectors import processes
from whichrank.model.last_words import Words
from whichrank.run.watch.capture.asking import ask_quickly, await_all, framed
from whichrank.run.watch.job_processes import JobProcesses, Member


def member(pid: int, beat_ago_s: float) -> Member:
    row = processes.stat(pid)
    assert row is not None
    words = Words(pid=pid, start_ticks=row.start_ticks, rank=0, beat_ns=time.time_ns() - int(beat_ago_s * 1e9))
    return Member(words, f"{pid}.{row.start_ticks}")


def test_who_is_silent_because_nobody_reads_its_words_is_not_held(tmp_path: Path):
    one = member(os.getpid(), beat_ago_s=2.5)
    answer = tmp_path / f"{one.name}.take1.stacks"
    threading.Timer(1.5, answer.touch).start()
    await_all(JobProcesses(tmp_path), [one], "take1", 10.0)
    assert answer.exists()


def test_a_held_interpreter_is_hardly_waited_for(tmp_path: Path):
    began = time.monotonic()
    await_all(JobProcesses(tmp_path), [member(os.getpid(), beat_ago_s=9.0)], "take1", 60.0)
    assert time.monotonic() - began < 30


def test_nobody_waits_for_a_zombie(tmp_path: Path):
    child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    one = member(child.pid, beat_ago_s=0.0)
    os.mkfifo(tmp_path / f"{one.name}.ask")
    pipe = os.open(tmp_path / f"{one.name}.ask", os.O_RDWR | os.O_NONBLOCK)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    began = time.monotonic()
    ask_quickly(JobProcesses(tmp_path), [one], "lost1", 60.0)
    assert time.monotonic() - began < 30
    child.communicate()
    os.close(pipe)


def test_frames_are_there_when_every_recorder_has_them(tmp_path: Path):
    one = member(os.getpid(), beat_ago_s=0.0)
    for name in ("take1.fr", "take1.nccl", "take1.frames.fr"):
        (tmp_path / f"{one.name}.{name}").touch()
    assert framed(tmp_path, one) == ""
    (tmp_path / f"{one.name}.take1.frames.nccl").touch()
    assert framed(tmp_path, one) == "take1.frames"
