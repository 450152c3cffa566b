"""Passes a job's output on, byte for byte, and keeps a copy: a program of its own, which outlives a killed watcher.

Run by `streams.py` in a bare interpreter (no site, no package): the standard library alone. Its arguments are the
descriptor of its control line and, for each stream, `SOURCE:TARGET:LIMIT:FILE`. On the control line `d` asks that all
written so far be passed on, `w` that the size of the window be; both are answered by `k`.
"""

import contextlib
import os
import select
import signal
import sys

PIECE = 65536
TIOCGWINSZ, TIOCSWINSZ = 0x5413, 0x5414
"""Of Linux; the module `termios` need not be loaded for two numbers."""


class Stream:
    """From the job to where its output went before."""

    def __init__(self, source: int, target: int, limit: int, path: str) -> None:
        self.source, self.target, self.limit, self.path = source, target, limit, path
        self.size = 0
        self.copy = -1
        self._begin()

    def _begin(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(OSError):  # no room: the job's output is worth more than its copy
            self.copy = os.open(self.path, flags, 0o600)

    def move(self) -> bool:
        """One piece; False when there will be no more."""
        try:
            data = os.read(self.source, PIECE)
        except BlockingIOError:
            return True
        except OSError:  # the last one has closed its end of the terminal
            data = b""
        if not data or not self._pass_on(data):
            os.close(self.source)  # whoever still writes hears that nobody reads
            return False
        self._keep(data)
        return True

    def _pass_on(self, data: bytes) -> bool:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self.target, view) :]
            except BlockingIOError:
                select.select([], [self.target], [])
            except OSError:
                return False
        return True

    def _keep(self, data: bytes) -> None:
        if self.copy < 0:
            return
        try:
            os.write(self.copy, data)
            self.size += len(data)
            if self.size > self.limit:
                os.close(self.copy)
                self.copy, self.size = -1, 0
                os.replace(self.path, self.path + ".older")  # noqa: PTH105 - no pathlib in here
                self._begin()
        except OSError:
            os.close(self.copy)
            self.copy = -1

    def resize(self) -> None:
        import fcntl

        with contextlib.suppress(OSError):
            fcntl.ioctl(self.source, TIOCSWINSZ, fcntl.ioctl(self.target, TIOCGWINSZ, bytes(8)))


def main(arguments: list[str]) -> None:
    """Until no stream is left."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTOU):
        signal.signal(each, signal.SIG_IGN)  # it ends when the job's output does
    control, streams = int(arguments[0]), {}
    for word in arguments[1:]:
        source, target, limit, path = word.split(":", 3)
        streams[int(source)] = Stream(int(source), int(target), int(limit), path)
    poll = select.poll()
    for number in (control, *streams):
        poll.register(number, select.POLLIN)
    while streams:
        asked = b""
        for number, _ in poll.poll():
            if number == control:
                asked = _heard(control)
                if not asked:
                    poll.unregister(control)
            elif not streams[number].move():
                poll.unregister(number)
                del streams[number]
        if asked:
            _obey(asked, streams, poll)
            with contextlib.suppress(OSError):
                os.write(control, b"k")


def _heard(control: int) -> bytes:
    try:
        return os.read(control, 64)
    except OSError:
        return b""


def _obey(asked: bytes, streams: "dict[int, Stream]", poll: "select.poll") -> None:
    if b"w" in asked:
        for stream in streams.values():
            stream.resize()
    while b"d" in asked:
        ready = select.select(list(streams), [], [], 0)[0]
        if not ready:
            return
        for number in ready:
            if not streams[number].move():
                poll.unregister(number)
                del streams[number]


if __name__ == "__main__":
    main(sys.argv[1:])
