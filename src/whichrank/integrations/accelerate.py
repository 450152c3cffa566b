"""`guard(accelerator, model, optimizer)` after `accelerator.prepare`."""

from __future__ import annotations

from typing import Any


def guard(accelerator: Any, model: Any = None, optimizer: Any = None, **wishes: Any) -> Any:
    """Guard a job of Accelerate; None where it has one process."""
    if accelerator.num_processes < 2:
        return None
    from whichrank.worker.guard import guard as begin

    inner = getattr(optimizer, "optimizer", optimizer)
    return begin(model, inner, **wishes)
