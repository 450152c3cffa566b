"""Leave for the watcher to look at the stacks of this process, where the kernel asks for one.

Copied into the job beside `startup.py`: standard library only, for any Python that torch runs on.
"""

from __future__ import annotations

WATCHER = "WHICHRANK_WATCHER"
"""The variable that carries the watcher's pid into the job."""
_PR_SET_PTRACER = 0x59616D61


def permit(pid: str) -> bool:
    """With Yama's ptrace_scope 1 only a named process, and what it starts, may trace; elsewhere nothing changes."""
    if not pid.isdecimal() or not 1 < int(pid) < 1 << 31:
        return False
    import ctypes

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return bool(prctl(_PR_SET_PTRACER, ctypes.c_ulong(int(pid)), 0, 0, 0) == 0)
