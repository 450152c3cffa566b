"""Ranks forked from one parent that has imported torch; when one fails the others are ended, as launchers do."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from typing import NoReturn

GRACE_S = 5.0
POLL_S = 0.1
"""How often torchrun looks whether its ranks live: the others have this long when one has ended."""


def fork_ranks(local_ranks: Iterable[int], train: Callable[[int], None], first: int = 0) -> int:
    """The code of the first that failed, 1 for a signal; 0 when all ended well. `first`: this host's first rank."""
    children: dict[int, int] = {}
    for local in local_ranks:
        rank = first + local
        # Set before the fork: the child is known by its number from its first moment.
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(local))
        child = os.fork()
        if child == 0:
            _live(train, rank)
        children[child] = rank
    code = 0
    while children:
        child, status = os.wait()
        rank = children.pop(child)
        if status and not code:
            code = os.waitstatus_to_exitcode(status)
            sys.stderr.write(f"rank {rank} (pid {child}) ended with {code}\n")
            time.sleep(POLL_S)
            _end(children)
    return 1 if code < 0 else code


def _live(train: Callable[[int], None], rank: int) -> NoReturn:
    """The life of a forked rank, with the ends that an interpreter would have had."""
    code = 1
    try:
        train(rank)
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 1
    except BaseException as error:  # noqa: BLE001 - what an interpreter does at its end
        sys.last_value = error
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        import atexit

        atexit._run_exitfuncs()  # noqa: SLF001 - a forked child that leaves by _exit has to run them itself
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _end(children: dict[int, int]) -> None:
    for child in children:
        os.kill(child, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    waiting = dict(children)
    while waiting and time.monotonic() < deadline:
        for child in list(waiting):
            if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                waiting.pop(child)
        time.sleep(0.05)
    for child in waiting:
        os.kill(child, signal.SIGKILL)
