"""Children of `multiprocessing` end without the interpreter's hooks: what ends them is heard on their way out."""

from __future__ import annotations

import sys
from collections.abc import Callable


def hear_the_end(tell: Callable[[BaseException], None]) -> bool:
    """Have `tell` called with the exception that ends this child; False while it is not known to be one."""
    process, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
    if util is None or getattr(process, "_parent_process", None) is None:
        return False
    util.Finalize(None, _leave, args=(tell,), exitpriority=100)
    return True


def _leave(tell: Callable[[BaseException], None]) -> None:
    error = sys.exc_info()[1]
    # torch's `spawn` writes down what the function raised, and leaves by an exit code.
    raised = (error.__context__ if error.code else None) if isinstance(error, SystemExit) else error
    if raised is not None:
        tell(raised)
