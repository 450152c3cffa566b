"""Programs of others, asked for what only they know: py-spy and nvidia-smi. Each bounded in time, and abandonable."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

SPY_S = 4.0
SMI_S = 5.0
MOST = 8 << 20


def _ask(command: list[str], limit_s: float) -> tuple[bytes, str]:
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
        return b"", f"no answer within {limit_s:.0f} s"
    if child.returncode:
        said = err.decode("utf-8", "replace").strip().splitlines()
        return b"", said[-1][:300] if said else f"it ended with code {child.returncode}"
    return out[:MOST], ""


def py_spy() -> str | None:
    """The program, beside this Python or on the path."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if beside.is_file() else shutil.which("py-spy")


def stack(pid: int) -> tuple[bytes, str]:
    """The Python stacks of a process, without stopping it (a stopped one can be read only so)."""
    program = py_spy()
    if program is None:
        return b"", "py-spy is not installed"
    return _ask([program, "dump", "--nonblocking", "--pid", str(pid)], SPY_S)


def gpus() -> tuple[bytes, str]:
    """The state of the GPUs of this host."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return b"", "there is no nvidia-smi"
    return _ask([program, "-q"], SMI_S)
