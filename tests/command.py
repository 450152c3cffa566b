"""The command in a process of its own that need not import it again: a fork of the tests' process."""

from __future__ import annotations

import atexit
import os
import select
import signal
import subprocess
import sys
import tempfile
import traceback
import types
import warnings
from collections.abc import Sequence
from typing import IO, NoReturn

from whichrank.cli.main import main


def run_forked(
    arguments: Sequence[str], environment: dict[str, str], stdin: str = "", timeout: float = 150
) -> subprocess.CompletedProcess[str]:
    """Like `python -m whichrank ARGUMENTS`, but for what the interpreter does with its variables when it starts."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin.encode())
        given.seek(0)
        child = os.fork()
        if child == 0:
            _be_the_command(arguments, environment, (given, out, err))
        code = _ended(child, arguments, timeout)
        said = [(stream.seek(0), stream.read().decode(errors="replace"))[1] for stream in (out, err)]
    return subprocess.CompletedProcess(list(arguments), code, *said)


def _ended(child: int, arguments: Sequence[str], timeout: float) -> int:
    watched = os.pidfd_open(child)
    try:
        ready, _, _ = select.select([watched], [], [], timeout)
        if not ready:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    finally:
        os.close(watched)
    if not ready:
        raise subprocess.TimeoutExpired(list(arguments), timeout)
    return os.waitstatus_to_exitcode(status)


def _be_the_command(arguments: Sequence[str], environment: dict[str, str], streams: Sequence[IO[bytes]]) -> NoReturn:
    code = 1
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream.fileno(), number)
        sys.stdin, sys.stdout = open(0, encoding="utf-8"), open(1, "w", encoding="utf-8")  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
        atexit._clear()
        sys.modules["__main__"] = types.ModuleType("__main__")
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["whichrank", *arguments]
        warnings.simplefilter("ignore")
        main()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter would
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
