"""The same micro-batch on another device: another GPU of this host, or another core of its CPU.

Two results on one device tell that one of them is wrong. They can't tell of a device that is wrong each time, nor
whether the code gives two results anywhere. A second device can.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from whichrank.worker.guard.replay import Pass

SPARE, SMALL = 4 << 30, 64 << 20
"""Bytes that stay free on the other GPU; parameters that a CPU may compute with in place of one."""
DATA, SOMETIMES, ALWAYS, CODE, UNCLEAR = "data", "sometimes", "always", "code", "unclear"
"""What results mean: unusual data; a device that is wrong now and then, or always; code that is not deterministic."""

Run = Callable[[], "list[float] | None"]


def _nothing() -> None:
    return None


NOWHERE: tuple[Run, str] = (_nothing, "")


def meaning(first: list[float], second: list[float], third: Run, close: Callable[[Any, Any], bool]) -> str:
    """By a result of the job, a second one of the same device, and some of another: run as often as it takes."""
    other = third()
    if other is None:
        return DATA if close(first, second) else UNCLEAR
    if close(first, second):
        if close(first, other):
            return DATA
        return ALWAYS if _agrees(other, third(), close) else CODE
    if close(other, first) or close(other, second):
        return SOMETIMES
    return UNCLEAR if _agrees(other, third(), close) else CODE


def _agrees(one: list[float], again: list[float] | None, close: Callable[[Any, Any], bool]) -> bool:
    return again is not None and close(one, again)


def run(passed: Pass, parameters: list[Any], guard: Any) -> tuple[Run, str]:
    """How to repeat a pass elsewhere, and where that is; "" where there is no other device."""
    home = next((p.device for p in parameters if p.device.type != "cpu"), None)
    if home is None:
        core = _another_core()
        if core is None:
            return NOWHERE

        def on_core() -> list[float] | None:
            with _on(core):
                return passed.again(parameters, guard)

        return on_core, f"core {core}"
    target = _another_gpu(home, parameters)
    if target is None or (target.type == "cpu" and passed.draws):  # it would draw other random numbers
        return NOWHERE

    def on_device() -> list[float] | None:
        with suppress(RuntimeError):  # no memory, or a constant of the model that lies on its own device
            return passed.again(parameters, guard, target)
        return None

    return on_device, f"GPU {target.index}" if target.type == "cuda" else "the CPU"


# -- a core


def _another_core() -> int | None:
    """A core that this thread is not on; this may be one that the job is not bound to."""
    here = _core_here()
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    others = [core for core in allowed if core != here] or [c for c in range(os.cpu_count() or 1) if c != here]
    return others[0] if others and here is not None else None


def _core_here() -> int | None:
    with suppress(OSError, ValueError, IndexError), open("/proc/thread-self/stat", encoding="ascii") as stream:  # noqa: PTH123
        return int(stream.read().rpartition(")")[2].split()[36])
    return None


@contextmanager
def _on(core: int) -> Iterator[None]:
    """This thread alone, for a moment."""
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {core})
    except OSError as error:
        raise RuntimeError("the core is not to be had") from error
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


# -- a GPU


def _another_gpu(home: Any, parameters: list[Any]) -> Any:
    size = sum(p.numel() * p.element_size() for p in parameters)
    if home.type == "cuda" and torch.cuda.device_count() > 1:
        other = torch.device("cuda", (home.index + 1) % torch.cuda.device_count())
        with suppress(RuntimeError):
            free, _ = torch.cuda.mem_get_info(other)
            if free > SPARE + 4 * size:
                return other
    return torch.device("cpu") if size <= SMALL else None
