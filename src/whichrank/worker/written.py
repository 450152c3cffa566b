"""What a process writes when it is asked or fails: its stacks, and the flight recorders of torch.

Copied into the job beside `startup.py`: standard library only, torch is looked at and never changed.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whichrank.worker.lastwords import Recorder

_MOST_PLACES = 64


def offer_stacks(place: str, recorder: Recorder) -> int:
    """With the interpreter's lock held by a stuck thread no Python runs: a signal that nobody uses still does.

    The descriptor that the stacks go to; -1 where the job uses the signal.
    """
    import faulthandler

    number = signal.SIGRTMAX - 3
    if signal.getsignal(number) is not signal.SIG_DFL:
        return -1
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    stacks = os.open(f"{place}.signalled", flags, 0o600)
    faulthandler.register(number, file=stacks, all_threads=True, chain=False)
    recorder.note(stack_signal=int(number), stack_fd=stacks)
    return stacks


def write_stacks(place: str, token: str) -> None:
    import faulthandler

    draft = f"{place}.{token}.part"
    with open(draft, "wb") as stream:  # noqa: PTH123
        faulthandler.dump_traceback(file=stream, all_threads=True)
        stream.write(_handling())
    os.replace(draft, f"{place}.{token}.stacks")  # noqa: PTH105


def _handling() -> bytes:
    """The exception that the main thread is handling: nobody else sees what led it into `finally` or `__exit__`."""
    import threading

    try:
        found = sys._current_exceptions().get(threading.main_thread().ident)  # type: ignore[arg-type] # noqa: SLF001
        error = found[1] if isinstance(found, tuple) else found
        trace = getattr(error, "__traceback__", None)
        if trace is None:
            return b""
        text = " ".join(str(error).split())[:300]
    except Exception:  # noqa: BLE001 - the words of an exception are the job's own code
        return b""
    places = []
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(f'  File "{code.co_filename}", line {trace.tb_lineno} in {code.co_name}')
        trace = trace.tb_next
    told = [f"\nHandling {type(error).__name__}: {text}", *reversed(places[-_MOST_PLACES:])]
    return "".join(f"{line}\n" for line in told).encode("utf-8", "replace")


def write_dumps(place: str, token: str, *, frames: bool) -> None:
    """The flight recorders of this process; nothing where torch has none."""
    from whichrank.worker.recorder_frames import without_compiler
    from whichrank.worker.standing import BINDING, RECORDERS

    binding = sys.modules.get(BINDING)
    for function, kind in RECORDERS:
        taken = getattr(binding, function, None)
        if taken is None:
            continue
        began_ns = time.time_ns()
        with without_compiler():
            data = taken(True, frames, False)
        draft = f"{place}.{token}.part"
        with open(draft, "wb") as stream:  # noqa: PTH123
            stream.write(data)
        # What is in it is as old as the question: the frames were only looked up since.
        os.utime(draft, ns=(began_ns, began_ns))
        os.replace(draft, f"{place}.{token}.{kind}")  # noqa: PTH105


def last_counts() -> dict[str, int]:
    """Who this process is, and how far it came; empty without a group."""
    c10d = ready("torch.distributed.distributed_c10d")
    if c10d is None:
        return {}
    from whichrank.worker.standing import Standing

    found = Standing().look(c10d, time.time_ns(), in_collective=True)
    return {name: found[name] for name in ("rank", "world", "enqueued", "completed")} if found else {}


def has_group() -> bool:
    """Whether a process group is there at this moment: the last beat may be older."""
    world = getattr(ready("torch.distributed.distributed_c10d"), "_world", None)
    return getattr(world, "default_pg", None) is not None


def ready(name: str) -> object | None:
    """A module that has been imported whole."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    return None if module is None or getattr(spec, "_initializing", False) else module
