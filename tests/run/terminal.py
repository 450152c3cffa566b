"""A program in a real terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

from tests.run import watched

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A program in a terminal of a given width."""

    def __init__(self, command: list[str], columns: int) -> None:
        setsid = ["setsid", "--ctty", "--wait"]  # so that a key reaches it as a signal
        self.end, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        environ = {**watched.environment(), "TERM": "xterm-256color"}
        environ = {name: value for name, value in environ.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [*setsid, *command], stdin=other, stdout=other, stderr=other, env=environ, start_new_session=True
        )
        os.close(other)
        self.text = ""

    def read_until(self, wanted: str, limit_s: float = 30) -> None:
        deadline = time.monotonic() + limit_s
        while wanted not in self.plain:
            assert time.monotonic() < deadline, f"no {wanted!r} in {self.plain[-1500:]!r}"
            if select.select([self.end], [], [], 0.2)[0]:
                try:
                    self.text += os.read(self.end, 65_536).decode("utf-8", "replace")
                except OSError:  # the program has ended
                    assert wanted in self.plain, self.plain[-1500:]

    @property
    def plain(self) -> str:
        return _CONTROL.sub("", self.text).replace("\r", "")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.end)
