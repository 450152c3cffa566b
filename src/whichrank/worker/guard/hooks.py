"""The places of torch at which the guard is told: its public hooks where there are any, wrapped functions elsewhere."""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Any

import torch

from whichrank.worker.guard import collectives, saving
from whichrank.worker.guard.session import Guard

_installed: Guard | None = None


def install(guard: Guard) -> Guard:
    """Once per process; a second call gives back the first guard."""
    global _installed  # noqa: PLW0603
    if _installed is not None:
        return _installed
    _installed = guard
    _count_steps()
    optimizer = import_module("torch.optim.optimizer")
    is_compiling = torch.compiler.is_compiling

    def before(stepping: Any, *_: Any) -> None:
        if not is_compiling():
            _safely(guard, guard.before_step, stepping)

    def after(stepping: Any, *_: Any) -> None:
        if not is_compiling():
            _safely(guard, guard.after_step, stepping)

    optimizer.register_optimizer_step_pre_hook(before)
    optimizer.register_optimizer_step_post_hook(after)
    _wrap_backward(guard, is_compiling)
    collectives.wrap(guard.collectives, guard.problem)
    saving.wrap(guard)
    return guard


def _safely(guard: Guard, call: Any, *arguments: Any) -> None:
    try:
        call(*arguments)
    except Exception as error:  # noqa: BLE001 - a guard never disturbs what it guards
        guard.problem(error)


def _wrap_backward(guard: Guard, is_compiling: Any) -> None:
    original = torch.autograd.backward
    inside = [0]

    @functools.wraps(original)
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
        if is_compiling():
            original(tensors, *args, **kwargs)
            return
        if not inside[0]:  # checkpointing goes backward within a backward pass
            _safely(guard, guard.before_backward, tensors)
        inside[0] += 1
        try:
            original(tensors, *args, **kwargs)
        finally:
            inside[0] -= 1

    torch.autograd.backward = backward


def _count_steps() -> None:
    """The counter of steps registers itself where no hook is yet: let it, before ours are there."""
    name = __name__.rpartition(".guard.")[0] + ".steps"
    import_module(name).look(import_module("torch.optim.optimizer"), torch.compiler)
