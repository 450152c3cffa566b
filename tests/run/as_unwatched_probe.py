"""Prints what a process can tell about how it was started, as JSON: watched or not, it is the same."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import select
import signal
import stat
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path


def stream(number: int) -> dict[str, object]:
    try:
        mode = os.fstat(number).st_mode
    except OSError:
        return {"open": False}
    size = struct.unpack("HHHH", fcntl.ioctl(number, termios.TIOCGWINSZ, b"\0" * 8)) if os.isatty(number) else None
    kind = "tty" if os.isatty(number) else "fifo" if stat.S_ISFIFO(mode) else "other"
    return {"open": True, "kind": kind, "size": size, "access": fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE}


def caught(number: signal.Signals) -> bool:
    """Whether a signal that the process sends to itself arrives, once."""
    heard: list[int] = []
    before = signal.signal(number, lambda got, _: heard.append(got))
    os.kill(os.getpid(), number)
    time.sleep(0.01)
    signal.signal(number, before)
    return heard == [number]


def child(code: str, **options: object) -> list[object]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, **options)  # type: ignore[call-overload]
    return [done.returncode, done.stdout.decode(), done.stderr.decode()]


def orphan() -> bool:
    """Whether a child whose parent ends goes to init (or a subreaper of the outside), not to this process."""
    read, write = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(0.1)
            os.write(write, b"x")
        os._exit(0)
    os.wait()
    os.close(write)
    alone = os.read(read, 1) == b"x"
    with contextlib.suppress(ChildProcessError):
        os.wait()
        return False
    return alone


def shell(text: str, **options: object) -> list[object]:
    done = subprocess.run(["sh", "-c", text], capture_output=True, check=False, **options)  # type: ignore[call-overload]
    return [done.returncode, done.stdout.decode(), done.stderr.decode()]


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


SITUATIONS: dict[str, Callable[[], object]] = {
    "arguments": lambda: sys.argv[1:],
    "working folder": os.getcwd,
    "umask": umask,
    "nice": lambda: os.nice(0),
    "limits": lambda: {
        name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")
    },
    "ids": lambda: [os.getuid(), os.geteuid(), os.getgid(), os.getgroups()],
    "stdin": lambda: stream(0),
    "stdout": lambda: stream(1),
    "stderr": lambda: stream(2),
    # The hook holds one in every Python, closed on exec.
    "descriptors that children inherit": lambda: shell("ls /proc/self/fd", close_fds=False),
    "blocked signals": lambda: sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))),
    "ignored signals": lambda: [
        int(n) for n in signal.Signals if signal.getsignal(n) is signal.SIG_IGN and n not in (signal.SIGPIPE, 25)
    ],
    **{
        f"{number.name} to itself": lambda number=number: caught(number)
        for number in (
            signal.SIGINT,
            signal.SIGTERM,
            signal.SIGHUP,
            signal.SIGUSR1,
            signal.SIGUSR2,
            signal.SIGALRM,
            signal.SIGWINCH,
            signal.SIGQUIT,
            signal.SIGCONT,
            signal.SIGCHLD,
        )
    },
    "environment": lambda: {
        name: value
        for name, value in sorted(os.environ.items())
        if not name.startswith(
            ("WHICHRANK", "_WHICHRANK", "TORCH", "NCCL", "GLOO", "PYTHONPATH", "PYTHONFAULT", "TRITON")
        )
    },
    "a variable of its own": lambda: os.environ.get("OF_THE_TEST"),
    "encoding": lambda: [sys.stdout.encoding, sys.stderr.errors, sys.getfilesystemencoding()],
    "line buffering": lambda: [sys.stdout.line_buffering, sys.stderr.line_buffering],
    "flags of Python": lambda: list(sys.flags),
    "hooks": lambda: [sys.gettrace() is None, sys.getprofile() is None, sys.displayhook is sys.__displayhook__],
    "name of main": lambda: [__name__, sys.argv[0]],
    "a child's code": lambda: child("raise SystemExit(9)"),
    "a child's streams": lambda: child("import sys; print('o'); print('e', file=sys.stderr)"),
    "a child by a signal": lambda: child("import os; os.kill(os.getpid(), 9)"),
    "a child with its own input": lambda: child("print(input()[::-1])", input=b"abc\n"),
    "a child in its own session": lambda: child(
        "import os; print(os.getsid(0) == os.getpid())", start_new_session=True
    ),
    "a child without an environment": lambda: child("import os; print(len(os.environ) < 3)", env={}),
    "an isolated child": lambda: shell(f"{sys.executable} -I -c 'print(1)'"),
    "a pipeline": lambda: shell("printf 'b\\na\\n' | sort | head -1"),
    "an orphan": orphan,
    "input is over": lambda: (
        (select.select([0], [], [], 0)[0] != [] and os.read(0, 1) == b"") if not os.isatty(0) else None
    ),
    "foreground": lambda: os.tcgetpgrp(0) == os.getpgrp() if os.isatty(0) else None,
    # Bytes pass a second terminal on their way out: that one neither translates nor echoes.
    "terminal settings": lambda: _settings() if os.isatty(1) else None,
    "a shell's exit trap": lambda: shell("trap 'echo bye' EXIT; exit 3"),
    "time limits": lambda: subprocess.run(["timeout", "0.2", "sleep", "5"], check=False).returncode,
    "core pattern": lambda: resource.getrlimit(resource.RLIMIT_CORE),
}


def _settings() -> list[int]:
    given, _, hardware, local = termios.tcgetattr(1)[:4]
    return [given, hardware, local & ~termios.ECHO]


def tell() -> dict[str, object]:
    return {name: look() for name, look in SITUATIONS.items()}


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(tell()), encoding="utf-8")
    sys.exit(23)
