"""The guard inside a rank: it measures what replicas must have in common, and writes it down. It never judges.

Copied into the job beside `startup.py` when `whichrank run --guard` asks for it: standard library and torch only.
Nothing in here draws random numbers, waits for the device or talks on the job's process groups.
"""

from __future__ import annotations

from typing import Any


def guard(model: Any = None, optimizer: Any = None, **wishes: Any) -> Any:
    """Guard this job from inside its script: `whichrank.guard(model, optimizer)` after both have been made.

    Under `whichrank run --guard` nothing needs to be called. Alone it writes its records to `folder` (default
    "whichrank-guard"), and rank 0 starts `whichrank guard --follow` on them.
    """
    from whichrank.worker.guard.script import begin

    return begin(model, optimizer, **wishes)
