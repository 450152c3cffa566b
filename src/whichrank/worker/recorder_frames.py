"""Keep torch from importing its compiler when it looks up the frames of a dump.

Copied into the job beside `startup.py`: standard library only. For frames of compiled code torch asks for
`torch._inductor`, which is imported on first use: 800 modules, 1.6 s of CPU and 70 MB in every rank at once. In a
process that has not imported it there is no compiled code to look up.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

COMPILER = "torch._inductor"


class _Refuses:
    """A finder of imports that finds nothing, and refuses one module to one thread."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:  # noqa: ARG002
        if name == COMPILER and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"{name} is not needed for frames", name=name)


@contextmanager
def without_compiler() -> Iterator[None]:
    """The calling thread can't import the compiler in here; other threads can, and one that was imported stays."""
    refuses = _Refuses()
    sys.meta_path.insert(0, refuses)
    try:
        yield
    finally:
        with suppress(ValueError):  # the job has put other finders there meanwhile
            sys.meta_path.remove(refuses)
