"""`Trainer(callbacks=[whichrank.integrations.lightning.Guard()])`."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def _base() -> Any:
    for name in ("lightning.pytorch.callbacks", "pytorch_lightning.callbacks"):
        try:
            return import_module(name).Callback
        except ImportError:
            continue
    raise ImportError("Lightning is not installed: pip install lightning")


class Guard(_base()):  # type: ignore[misc]
    """Guards the job from the moment at which the model and its optimizers are there."""

    def __init__(self, **wishes: Any) -> None:
        super().__init__()
        self.wishes = wishes

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        from whichrank.worker.guard import guard

        if trainer.world_size > 1:
            guard(pl_module, (trainer.optimizers or [None])[0], **self.wishes)
