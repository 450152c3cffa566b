"""`Trainer(callbacks=[whichrank.integrations.lightning.Marks()])`; `Guard()` compares replicas."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from whichrank.integrations import marking
from whichrank.integrations.verdict_note import attach


def _base() -> Any:
    for name in ("lightning.pytorch.callbacks", "pytorch_lightning.callbacks"):
        try:
            return import_module(name).Callback
        except ImportError:
            continue
    raise ImportError("Lightning is not installed: pip install lightning")


_Callback: Any = _base()


class Marks(_Callback):  # type: ignore[misc]
    """Marks steps and phases, and adds the verdict to the error that ends the training."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002
        strategy = trainer.strategy
        strategy.save_checkpoint = marking.marked(strategy.save_checkpoint, marking.CHECKPOINT)
        marking.enter(marking.DATA)

    def on_train_batch_start(self, *_: Any, **__: Any) -> None:
        marking.enter(marking.FORWARD)

    def on_before_backward(self, *_: Any, **__: Any) -> None:
        marking.enter(marking.BACKWARD)

    def on_after_backward(self, *_: Any, **__: Any) -> None:
        marking.enter(marking.OPTIMIZER)

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        marking.step(trainer.global_step)

    def on_validation_start(self, *_: Any, **__: Any) -> None:
        marking.enter(marking.EVALUATION)

    def on_validation_end(self, *_: Any, **__: Any) -> None:
        marking.enter(marking.DATA)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        marking.enter("")

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ARG002
        attach(exception)


class Guard(_Callback):  # type: ignore[misc]
    """Guards the job from the moment at which the model and its optimizers are there."""

    def __init__(self, **wishes: Any) -> None:
        super().__init__()
        self.wishes = wishes

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        from whichrank.worker.guard import guard

        if trainer.world_size > 1:
            guard(pl_module, (trainer.optimizers or [None])[0], **self.wishes)
