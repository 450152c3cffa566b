"""What a process waits in, by /proc: real processes."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from whichrank.evidence.collectors import processes

PROGRAMS = {
    "sleep": "import time; print(flush=True); time.sleep(60)",
    "lock": "import threading; l = threading.Lock(); l.acquire(); print(flush=True); l.acquire()",
    "": "print(flush=True); input()",
}


@pytest.mark.parametrize("wanted", PROGRAMS, ids=lambda wanted: wanted or "pipe")
def test_what_the_main_thread_waits_in(wanted):
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", PROGRAMS[wanted]], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()
    deadline = time.monotonic() + 10
    while (seen := processes.rest(child.pid)) != wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    child.kill()
    child.communicate()
    assert seen == wanted


def test_one_that_runs_rests_in_nothing():
    child = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
    time.sleep(0.2)
    seen = {processes.rest(child.pid) for _ in range(5)}
    child.kill()
    child.wait()
    assert seen == {""}


def test_one_that_is_gone():
    assert processes.rest(2**22 + 1) == ""
