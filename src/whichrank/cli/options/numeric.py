"""numpy, for verbs that read much."""

from __future__ import annotations

import os
from contextlib import suppress

LARGE = 4 << 20
"""Bytes: pieces of this size and more are fetched one by one, and given back."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Of malloc.h."""


def load() -> None:
    """Load numpy before what uses it.

    It is used for columns, never for algebra: its threads would only cost their start. And its hundred modules are
    loaded from here and not from far down in other imports: where the stack of calls has filled a piece of 16 KiB,
    Python maps and unmaps the next piece for every single call (3.11 and later), which takes a tenth of a short run.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    import numpy  # noqa: F401, ICN001

    _keep_memory()


def _keep_memory() -> None:
    """Have columns made of memory that was used before (glibc): by itself the C library gives every larger piece back
    to the system, and each of its pages costs again when it is fetched."""
    import ctypes

    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, LARGE)
        library.mallopt(_TRIM_THRESHOLD, 2 * LARGE)
