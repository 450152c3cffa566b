"""The life of one simulated rank: its environment, the script as its main program, and how it ended."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn

from whichrank.worker.rehearsal import client


def environment(rank: int, world: int, port: int) -> dict[str, str]:
    """What torchrun gives to a rank on one host."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(world),
        "ROLE_NAME": "default",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "rehearsal",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
    }


def live(run: Any, stacks: Path) -> NoReturn:
    """Run something as a rank's main program; tell the referee how it ended; leave."""
    code, error = 1, None
    try:
        listen_for_stacks(stacks)
        run()
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 0 if ending.code is None else 1
        client.note("left", at=told(ending)["at"])
        if code:
            error = told(ending)
    except BaseException as failure:  # noqa: BLE001 - however the script fails, the referee hears of it
        error = told(failure)
        traceback.print_exc()
    finally:
        leave(code, error)


def leave(code: int, error: dict[str, Any] | None) -> NoReturn:
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        client.note("end", code=code, error=error)
        line = client.current()
        if line is not None:
            line.socket.close()
    except OSError:
        pass
    finally:
        os._exit(code & 255)


def listen_for_stacks(folder: Path) -> None:
    stream = (folder / f"stack-{os.getpid()}").open("w", encoding="utf-8")
    faulthandler.register(signal.SIGUSR1, file=stream, all_threads=True)


def told(failure: BaseException) -> dict[str, Any]:
    """An exception for the record: what, where in the user's code, and which library raised it."""
    frames = list(_frames(failure.__traceback__))
    own = [place for place in frames if client.Settings.owns(place[0])]
    chain: list[str] = []
    at: BaseException | None = failure
    while at is not None and len(chain) < 6:
        chain.append(type(at).__name__)
        at = at.__cause__ or at.__context__
    return {
        "type": type(failure).__name__,
        "chain": chain,
        "message": str(failure)[:2000],
        "at": list(reversed(own))[:12],
        "raised_in": frames[-1] if frames else None,
    }


def _frames(trace: TracebackType | None) -> Any:
    while trace is not None:
        frame: FrameType = trace.tb_frame
        yield (frame.f_code.co_filename, trace.tb_lineno, frame.f_code.co_name)
        trace = trace.tb_next
