"""whichrank: which rank broke the distributed training job, why, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whichrank.worker.configure import configure
    from whichrank.worker.process_group import process_group

__version__ = "0.1.0"
__all__ = ["__version__", "configure", "process_group"]


def __getattr__(name: str) -> Any:
    """The library face is loaded when it is used: importing whichrank alone loads nothing else."""
    if name in {"configure", "process_group"}:
        from importlib import import_module

        return getattr(import_module(f"whichrank.worker.{name}"), name)
    raise AttributeError(f"module 'whichrank' has no attribute '{name}'")
