"""A rank that the launcher has started anew is told of the newest checkpoint, before its first line runs.

A launcher that restarts its ranks starts them as it did the first time, with the checkpoint of that time. Copied into
the job beside `startup.py`: standard library only, for any Python that torch runs on.
"""

from __future__ import annotations

import os
import sys
import time

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
    path = _chosen(folder, int(attempt))
    if not path:
        return
    import json

    with open(f"{folder}/{PLAN}", encoding="utf-8") as stream:  # noqa: PTH123
        plan = json.load(stream)
    if plan["variable"]:
        os.environ[plan["variable"]] = path
    launched = plan["launched"]
    if plan["arguments"]:
        if launched and sys.argv[-len(launched) :] == launched:
            del sys.argv[-len(launched) :]
        sys.argv += [part.replace("{path}", path) for part in plan["arguments"]]


def _chosen(folder: str, attempt: int) -> str:
    """The path for this attempt; "" where there is none, or it is the one of the launch."""
    deadline = time.monotonic() + PATIENCE_S
    while attempt > 0 and not os.path.exists(f"{folder}/{PLAN}.{attempt}"):  # noqa: PTH110
        if time.monotonic() > deadline or not _is_watched():
            break
        time.sleep(0.05)
    for number in range(attempt, -1, -1):
        try:
            with open(f"{folder}/{PLAN}.{number}", encoding="utf-8", errors="surrogateescape") as stream:  # noqa: PTH123
                return stream.read()
        except OSError:
            continue
    return ""


def _is_watched() -> bool:
    watcher = os.environ.get(WATCHER, "")
    return not watcher.isdigit() or os.path.exists(f"/proc/{watcher}")  # noqa: PTH110
