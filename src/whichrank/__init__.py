"""whichrank: which rank broke the distributed training job, why, and what to do."""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, which takes a while to load: programs import this in every rank
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"
__all__ = ["__version__", "checkpoint", "configure", "process_group"]


def __getattr__(name: str) -> Any:
    """For programs: `configure`, `process_group`, `guard`, `checkpoint`. Loaded when used."""
    if name in {"configure", "process_group", "guard"}:
        from importlib import import_module

        return getattr(import_module(f"whichrank.worker.{name}"), name)
    if name == "checkpoint":
        from importlib import import_module

        return import_module("whichrank.checkpoint")
    raise AttributeError(f"module 'whichrank' has no attribute '{name}'")
