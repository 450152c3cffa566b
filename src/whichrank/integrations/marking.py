"""Steps and phases of a training loop, and the verdict on its error: what every trainer's adapter is made of.

Everything here works in a job that nobody watches too: it then does nothing.

    from whichrank.integrations import marking

    marking.follow(model)                  # forward, backward, evaluation
    with marking.errors():                 # the verdict goes into the error
        for batch in marking.data(loader): # data
            ...
            marking.step()                 # a step is done
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from whichrank.integrations.verdict_note import attach
from whichrank.worker import marks
from whichrank.worker.marks import BACKWARD, CHECKPOINT, DATA, EVALUATION, FORWARD, OPTIMIZER

__all__ = ["BACKWARD", "CHECKPOINT", "DATA", "EVALUATION", "FORWARD", "OPTIMIZER", "data", "enter", "errors", "follow"]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def enter(phase: str) -> None:
    """This phase begins now, and lasts until the next one does; "" for none."""
    marks.here().enter(phase)


def step(number: int | None = None) -> None:
    """A step is done; its number where the trainer counts itself. What follows is the next batch."""
    here = marks.here()
    here.steps = here.steps + 1 if number is None else number
    here.enter(DATA)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """All of the block is this phase; then comes what was before."""
    here = marks.here()
    before = here.enter(name)
    try:
        yield
    finally:
        here.enter(before)


def marked(function: F, name: str) -> F:
    """The function, as a phase."""

    @functools.wraps(function)
    def inside(*given: Any, **named: Any) -> Any:
        with phase(name):
            return function(*given, **named)

    return inside  # type: ignore[return-value]


def data(loader: Iterable[T]) -> Iterator[T]:
    """The batches of a loader; the time until each is there is the phase of the data."""
    batches = iter(loader)
    while True:
        with phase(DATA):
            try:
                batch = next(batches)
            except StopIteration:
                return
        yield batch


def follow(model: Any) -> None:
    """Mark forward, backward and evaluation by the hooks that torch has for calls of a model.

    A compiled model is left alone: it must neither depend on the marks nor be compiled again for them.
    """
    compiled = hasattr(model, "_orig_mod") or getattr(model, "_compiled_call_impl", None) is not None
    if compiled or not hasattr(model, "register_forward_pre_hook"):
        return
    here = marks.here()

    def before(module: Any, _given: Any) -> None:
        here.enter(FORWARD if module.training else EVALUATION)

    def after(module: Any, _given: Any, _result: Any) -> None:
        if module.training:
            here.enter(BACKWARD)

    model.register_forward_pre_hook(before)
    model.register_forward_hook(after)


@contextmanager
def errors() -> Iterator[None]:
    """An error that leaves the block carries what whichrank knows of the failure."""
    try:
        yield
    except Exception as error:
        attach(error)
        raise
    finally:
        enter("")
