"""`Trainer(callbacks=[whichrank.integrations.transformers.Marks()])`; `Guard()` compares replicas."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from whichrank.integrations import marking
from whichrank.integrations.verdict_note import attach

_Callback: Any = import_module("transformers").TrainerCallback


class Marks(_Callback):  # type: ignore[misc]
    """Marks steps and phases, and adds the verdict to the error that ends the training.

    The trainer tells its callbacks nothing of an error: it gets its note where nothing has caught it. Put
    `with marking.errors():` around `trainer.train()` where something may.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG002
        if not getattr(args, "torch_compile", False):
            marking.follow(given.get("model"))
        marking.enter(marking.DATA)
        _hook_errors()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        marking.enter(marking.FORWARD)

    def on_substep_end(self, *_: Any, **__: Any) -> None:
        marking.enter(marking.DATA)

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        marking.enter(marking.OPTIMIZER)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        marking.step(state.global_step)
        _next(control, evaluated=False)

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        _next(control, evaluated=True)

    def on_save(self, *_: Any, **__: Any) -> None:
        marking.enter(marking.DATA)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        marking.enter("")


def _next(control: Any, *, evaluated: bool) -> None:
    """After a step the trainer evaluates and then saves, where its control says so."""
    if control.should_evaluate and not evaluated:
        marking.enter(marking.EVALUATION)
    else:
        marking.enter(marking.CHECKPOINT if control.should_save else marking.DATA)


def _hook_errors() -> None:
    before = sys.excepthook
    if getattr(before, "_whichrank", False):
        return

    def hook(kind: Any, error: BaseException, trace: Any) -> None:
        attach(error)
        before(kind, error, trace)

    hook._whichrank = True  # type: ignore[attr-defined]  # noqa: SLF001
    sys.excepthook = hook


class Guard(_Callback):  # type: ignore[misc]
    """Guards the job from the moment at which the model and its optimizer are there."""

    def __init__(self, **wishes: Any) -> None:
        self.wishes = wishes

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG002
        from whichrank.worker.guard import guard

        if args.world_size > 1:
            guard(given.get("model"), given.get("optimizer"), **self.wishes)
