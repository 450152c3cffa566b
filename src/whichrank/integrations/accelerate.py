"""`with watched(accelerator, model, optimizer):` around the loop, after `prepare`; `guard` compares replicas."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from whichrank.integrations import marking


@contextmanager
def watched(accelerator: Any, model: Any = None, optimizer: Any = None) -> Iterator[None]:
    """Mark steps and phases of a loop with Accelerate; an error that leaves the block carries the verdict."""
    if model is not None:
        marking.follow(model)
    accelerator.backward = _before_the_step(marking.marked(accelerator.backward, marking.BACKWARD))
    for name in ("save_state", "save_model", "load_state"):
        setattr(accelerator, name, marking.marked(getattr(accelerator, name), marking.CHECKPOINT))
    if optimizer is not None:
        optimizer.step = _counted(accelerator, optimizer.step)
    marking.enter(marking.DATA)
    with marking.errors():
        yield


def _before_the_step(backward: Any) -> Any:
    def inside(*given: Any, **named: Any) -> Any:
        found = backward(*given, **named)
        marking.enter(marking.OPTIMIZER)
        return found

    return inside


def _counted(accelerator: Any, step: Any) -> Any:
    def inside(*given: Any, **named: Any) -> Any:
        found = step(*given, **named)
        if accelerator.sync_gradients:  # else only gradients were gathered
            marking.step()
        else:
            marking.enter(marking.DATA)
        return found

    return inside


def guard(accelerator: Any, model: Any = None, optimizer: Any = None, **wishes: Any) -> Any:
    """Guard a job of Accelerate; None where it has one process."""
    if accelerator.num_processes < 2:
        return None
    from whichrank.worker.guard import guard as begin

    inner = getattr(optimizer, "optimizer", optimizer)
    return begin(model, inner, **wishes)
