"""numpy, for verbs that read much."""

from __future__ import annotations

import os


def load() -> None:
    """Load numpy before what uses it.

    It is used for columns, never for algebra: its threads would only cost their start. And its hundred modules are
    loaded from here and not from far down in other imports: where the stack of calls has filled a piece of 16 KiB,
    Python maps and unmaps the next piece for every single call (3.11 and later), which takes a tenth of a short run.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    import numpy  # noqa: F401, ICN001
