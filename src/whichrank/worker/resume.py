"""A rank that the launcher has started anew is told of the newest checkpoint, before its first line runs.

A launcher that restarts its ranks starts them as it did the first time, with the checkpoint of that time. Copied into
the job beside `startup.py`: standard library only, for any Python that torch runs on.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

PLAN = "resume"
"""How to hand a checkpoint on: the variable, the arguments, and the arguments of the launch, one JSON text."""
TAKEN = "WHICHRANK_RESUMED"
WATCHER = "WHICHRANK_WATCHER"
PATIENCE_S = 30.0
"""The watcher writes the choice while the launcher still ends the other ranks; it is never late, unless it hangs."""


def take_up(folder: str) -> None:
    """Take what was chosen for this attempt: all its ranks read the same file."""
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
    # Children of a rank have its variables: they must not wait, and their arguments are their own.
    if not attempt.isdigit() or "RANK" not in os.environ or os.environ.get(TAKEN) == attempt:
        return
    os.environ[TAKEN] = attempt
    chosen = _chosen(folder, int(attempt))
    if chosen is None:
        return
    if chosen["port"]:
        # Not the store of the launcher, in which the addresses of dead ranks still are.
        os.environ["MASTER_PORT"], os.environ["TORCHELASTIC_USE_AGENT_STORE"] = str(chosen["port"]), "False"
    if chosen["path"]:
        _hand_on(_read(f"{folder}/{PLAN}") or {}, chosen["path"])


def _hand_on(plan: dict[str, Any], path: str) -> None:
    if plan["variable"]:
        os.environ[plan["variable"]] = path
    launched = plan["launched"]
    if plan["arguments"]:
        if launched and sys.argv[-len(launched) :] == launched:
            del sys.argv[-len(launched) :]
        sys.argv += [part.replace("{path}", path) for part in plan["arguments"]]


def _chosen(folder: str, attempt: int) -> dict[str, Any] | None:
    """The choice for this attempt; None where there is none, and what the launch gave counts."""
    deadline = time.monotonic() + PATIENCE_S
    while attempt > 0 and not os.path.exists(f"{folder}/{PLAN}.{attempt}"):  # noqa: PTH110
        if time.monotonic() > deadline or not _is_watched():
            break
        time.sleep(0.05)
    found = (_read(f"{folder}/{PLAN}.{number}") for number in range(attempt, -1, -1))
    return next((choice for choice in found if choice is not None), None)


def _read(path: str) -> dict[str, Any] | None:
    import json

    try:
        with open(path, encoding="utf-8") as stream:  # noqa: PTH123
            return dict(json.load(stream))
    except OSError:
        return None


def _is_watched() -> bool:
    watcher = os.environ.get(WATCHER, "")
    return not watcher.isdigit() or os.path.exists(f"/proc/{watcher}")  # noqa: PTH110
