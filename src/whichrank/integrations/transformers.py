"""`Trainer(callbacks=[whichrank.integrations.transformers.Guard()])`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_Callback: Any = import_module("transformers").TrainerCallback


class Guard(_Callback):  # type: ignore[misc]
    """Guards the job from the moment at which the model and its optimizer are there."""

    def __init__(self, **wishes: Any) -> None:
        self.wishes = wishes

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG002
        from whichrank.worker.guard import guard

        if args.world_size > 1:
            guard(given.get("model"), given.get("optimizer"), **self.wishes)
