"""Ranks that are forked while the watcher's thread of their parent is at work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from whichrank.model import last_words as layout
from whichrank.run.watch import private
from whichrank.run.watch.job_processes import JobProcesses

# On a busy machine a thread may lose its turn anywhere, here in the midst of a module, while the job forks its ranks.
FORKS = """
import os, threading, time

forked = threading.Event()

def slow(frame, event, argument):
    if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.endswith("steps.py"):
        forked.wait(20)

threading.settrace(slow)
import torch, torch.distributed

for _ in range(8):
    if os.fork() == 0:
        time.sleep(2)
        os._exit(0)
    time.sleep(0.1)
forked.set()
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"""


@pytest.mark.job
def test_a_fork_in_the_midst_of_an_import_leaves_no_rank_unwatched(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    folder = private.make()
    try:
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        environment.update(private.variables(folder, environment))
        subprocess.run([sys.executable, "-c", FORKS], env=environment, check=True, timeout=120, cwd=tmp_path)
        found = JobProcesses(folder)
        found.look()
        words = [member.words for member in found.members.values()]
        assert len(words) == 9
        assert [each.error for each in words if each.flags & layout.BLIND] == []
    finally:
        private.remove(folder)
