"""The guard as a script calls it: `whichrank.guard(model, optimizer)`."""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
from typing import Any

import torch

from whichrank.worker.guard.hooks import install
from whichrank.worker.guard.session import Guard

FOLDER = "whichrank-guard"
PRIVATE = "WHICHRANK_PRIVATE"


def begin(
    model: Any = None, optimizer: Any = None, *, folder: str | os.PathLike[str] = FOLDER, strict: bool = False,
    judge: bool = True,
) -> Guard:  # fmt: skip
    """Begin, or give back the guard that `whichrank run --guard` has put in place.

    Models and optimizers are found by themselves; those that are given are looked at at once. All ranks must see the
    folder. With `judge` rank 0 starts `whichrank guard --follow` beside the job, which tells on stderr what it finds.
    """
    place = os.path.abspath(os.fspath(folder))  # noqa: PTH100
    os.makedirs(place, exist_ok=True)  # noqa: PTH103
    name = f"{socket.gethostname()}-{os.getpid()}"
    fresh = Guard(place, f"{place}/{name}.guard", "strict" if strict else "on")
    guard = install(fresh)
    if (model is not None or optimizer is not None) and guard.on:
        guard.find()
    if guard is fresh and judge and PRIVATE not in os.environ and _first():
        _follow(place)
    return guard


def _first() -> bool:
    if torch.distributed.is_initialized():
        return bool(torch.distributed.get_rank() == 0)
    return os.environ.get("RANK", "0") == "0"


def _follow(place: str) -> None:
    """A process that reads the records and judges them; it ends with this one."""
    command = [sys.executable, "-m", "whichrank", "guard", "--follow", str(os.getpid()), place]
    environment = {
        name: value for name, value in os.environ.items() if name not in ("RANK", "LOCAL_RANK", "WORLD_SIZE")
    }
    try:
        judge = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment)  # noqa: S603
    except OSError:
        return
    atexit.register(_leave, judge)


def _leave(judge: subprocess.Popen[bytes]) -> None:
    """It reads the last records once this process has gone; it need not be waited for."""
    judge.poll()
