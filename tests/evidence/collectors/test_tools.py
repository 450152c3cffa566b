"""py-spy and gdb on a real process: running, and stopped."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from whichrank.evidence.collectors import processes, tools

NEEDS_SPY = pytest.mark.skipif(tools.py_spy() is None, reason="py-spy is not installed")
CODE = "import time\ndef inner():\n    print('ready', flush=True)\n    time.sleep(60)\ninner()\n"


@pytest.fixture
def sleeper(tmp_path, monkeypatch):
    monkeypatch.setattr(tools, "SPY_S", 30.0)  # on a busy machine symbols take their time
    program = tmp_path / "program.py"
    program.write_text(CODE)
    child = subprocess.Popen([sys.executable, program], stdout=-1, text=True)
    assert child.stdout.readline() == "ready\n"
    deadline = time.monotonic() + 5
    while processes.stat(child.pid).state != "S" and time.monotonic() < deadline:
        time.sleep(0.02)
    yield child.pid
    child.kill()
    child.communicate()


@NEEDS_SPY
def test_a_running_process(sleeper):
    said, why = tools.stack(sleeper)
    if not said:
        pytest.skip(f"this machine does not let us look: {why}")
    assert b"inner (program.py:4)" in said
    assert processes.stat(sleeper).state == "S"


@NEEDS_SPY
def test_with_frames_of_c(sleeper):
    said, why = tools.native_stack(sleeper)
    if not said:
        pytest.skip(f"this machine does not let us look: {why}")
    assert b"inner (program.py:4)" in said
    assert b"libc.so" in said
    assert processes.stat(sleeper).state in "RS", "it goes on"


@NEEDS_SPY
def test_a_stopped_process(sleeper):
    os.kill(sleeper, signal.SIGSTOP)
    deadline = time.monotonic() + 5
    while processes.stat(sleeper).state != "T" and time.monotonic() < deadline:
        time.sleep(0.02)
    said, why = tools.stack(sleeper)
    if not said and "ermission" in why:
        pytest.skip(f"this machine does not let us look: {why}")
    assert b"inner (program.py:4)" in said
    assert processes.stat(sleeper).state == "T", "and stays so"


@NEEDS_SPY
def test_no_such_process():
    said, why = tools.stack(2**22 - 1)
    assert not said
    assert "No such file or directory" in why
    assert "lang_start" not in why


@pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed")
def test_gdb(sleeper):
    said, why = tools.debugged(sleeper)
    if not said:
        pytest.skip(f"this machine does not let us look: {why}")
    assert b"#0" in said
    assert processes.stat(sleeper).state == "S"


def test_a_program_that_hangs_is_left(tmp_path):
    began = time.monotonic()
    said, why = tools.ask(["sleep", "60"], 0.3)
    assert not said
    assert tools.NO_ANSWER in why
    assert time.monotonic() - began < 30


def test_a_program_that_fails_says_why(tmp_path):
    assert tools.ask(["sh", "-c", "echo first >&2; echo last >&2; exit 3"], 5.0) == (b"", "first; last")
    assert tools.ask([str(Path(tmp_path) / "none")], 5.0)[1].startswith("can't be started")
