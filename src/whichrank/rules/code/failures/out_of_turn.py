"""A collective in a second thread, a destructor or a callback.

What it finds: collectives in the target of a thread, in `__del__`, in a signal handler or at exit, on a group
that other code uses too.

Why it happens: operations of one group have to be issued in the same order on all ranks. Threads, the garbage
collector and signals run at another moment on every rank.

How it decides: targets of Thread, Timer and executors, functions given to atexit, signal and
weakref.finalize, and `__del__` are followed to collectives. So are coroutines that asyncio runs side by side and
that wait for something on their way. A thread with a group of its own is fine.

Example: `threading.Thread(target=sync_metrics).start()` where sync_metrics() all-reduces on the default
group.

Fix: give the thread a group of its own (`dist.new_group()`, made by all ranks), or hand the work to the main
thread.

Limits: threads that libraries start are not seen.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.records.code import Parting
from whichrank.rules.code_findings import Said, because, on_partings, shown

CODE = "LINT109"
CAUSE = "collective-order"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    shapes = {"thread", "destructor", "callback"}
    return on_partings(case, (CODE, CAUSE), lambda parting: parting.shape in shapes, _say)


def _say(parting: Parting) -> Said:
    message = (
        f"{shown(parting.concerned)} is called out of turn: {because(parting.reasons)}. "
        "Ranks issue it at different places among the operations of the same group."
    )
    fix = ("Use a group of its own for it, made by all ranks, or call it from the main thread at a fixed place.",)
    return Said(message, fix, CAUSE if parting.shape != "callback" else "conditional-collective")
