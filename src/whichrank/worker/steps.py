"""Steps of the optimizers of this process, counted by the hook that torch has for them.

Copied into the job beside `startup.py`: standard library only. This is the one thing of torch that is used rather
than looked at, by its public function; where the job has hooks of its own for all optimizers, nothing is done.
"""

from __future__ import annotations

from typing import Any

_count = 0
_counting = False


def look(optimizer: Any, compiler: Any) -> int:
    """Steps so far, by torch's modules of these names; a torch that lacks what is needed is not counted."""
    global _counting  # noqa: PLW0603
    if not _counting:
        _counting = True
        # A dictionary that the main thread may be walking through must not grow: an empty one is safe.
        is_compiling = getattr(compiler, "is_compiling", None)
        if getattr(optimizer, "_global_optimizer_post_hooks", None) == {} and is_compiling is not None:
            optimizer.register_optimizer_step_post_hook(_counter(is_compiling))
    return _count


def _counter(is_compiling: Any) -> Any:
    def count(*_: object) -> None:
        global _count  # noqa: PLW0603
        if not is_compiling():  # a compiled step must neither depend on the count nor be compiled anew for it
            _count += 1

    return count
