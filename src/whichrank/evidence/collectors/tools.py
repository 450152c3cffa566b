"""Programs of others, asked for what only they know: py-spy and gdb. Each bounded in time, and abandonable."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

SPY_S = 4.0
GDB_S = 20.0
MOST = 8 << 20
NO_ANSWER = "no answer within"


def ask(command: list[str], limit_s: float) -> tuple[bytes, str]:
    """What a program printed, and why there is nothing where there is nothing."""
    try:
        child = subprocess.Popen(  # noqa: S603 - a program found on the path, no shell
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
    except OSError as error:
        return b"", f"can't be started: {error.strerror}"
    try:
        out, err = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        # On a wedged driver it may not even die: it is told to, and left.
        os.kill(child.pid, signal.SIGKILL)
        return b"", f"{NO_ANSWER} {limit_s:.0f} s"
    if child.returncode:
        return b"", _reason((err or out).decode("utf-8", "replace")) or f"it ended with code {child.returncode}"
    return out[:MOST], ""


def _reason(said: str) -> str:
    """The first and the last line of a complaint; py-spy adds where in itself it failed."""
    text = said.partition("Stack backtrace:")[0]
    lines = [re.sub("^Error: ", "", line.strip()) for line in text.splitlines() if line.strip()]
    return "; ".join(dict.fromkeys((lines[0], lines[-1])))[:300] if lines else ""


def py_spy() -> str | None:
    """The program, beside this Python or on the path."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if beside.is_file() else shutil.which("py-spy")


def stack(pid: int) -> tuple[bytes, str]:
    """The Python stacks of a process, without stopping it (a stopped one can be read only so)."""
    return _spied("--nonblocking", "--pid", str(pid))


def native_stack(pid: int) -> tuple[bytes, str]:
    """The stacks with the frames of C between those of Python: the process pauses while they are read."""
    return _spied("--native", "--pid", str(pid))


def _spied(*arguments: str) -> tuple[bytes, str]:
    program = py_spy()
    if program is None:
        return b"", "py-spy is not installed"
    return ask([program, "dump", *arguments], SPY_S)


def debugged(pid: int) -> tuple[bytes, str]:
    """The stacks as gdb shows them: the process stands still for seconds."""
    program = shutil.which("gdb")
    if program is None:
        return b"", "gdb is not installed"
    quiet = ["-nx", "-batch", "-ex", "set pagination off", "-ex", "set debuginfod enabled off"]
    return ask([program, *quiet, "-p", str(pid), "-ex", "thread apply all bt 24"], GDB_S)
