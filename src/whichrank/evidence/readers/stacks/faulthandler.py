"""Python's faulthandler: stacks of all threads, on a fatal signal, on demand or by a timer."""

from __future__ import annotations

import re

from msgspec import Struct, field

from whichrank.records.dump import Frame
from whichrank.records.stack import Handling, ProcessStack, ThreadStack, is_user_frame

_THREAD = re.compile(
    r"^(Current thread|Thread) (0x[0-9a-fA-F]{1,16})(?: \[([^\]]{0,100})\])? ?\(most recent call first\)"
)
_FRAME = re.compile(r'^  File "([^"]{1,1000})", line (\d{1,9}|\?\?\?) in (.{1,300})$')
_REASON = re.compile(r"^(Fatal Python error: .{1,200}|Timeout \([\d:.]{1,30}\)!)")
_HANDLING = re.compile(r"^Handling ([\w.]{1,100}): ?(.{0,400})$")
"""What whichrank adds of the exception that the main thread handles."""
_MOST_THREADS = 4096
_MOST_FRAMES = 256


def begins(text: str) -> bool:
    return "(most recent call first)" in text and _THREAD.match(text) is not None


class _Thread(Struct):
    tid: int
    name: str
    current: bool
    line: int
    frames: list[Frame] = field(default_factory=list)


class Builder:
    """Fed with the lines of one speaker; gives one process per dump."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._threads: list[_Thread] = []
        self._reason = ""
        self._patience = 0
        self._open = False
        self._handled: tuple[re.Match[str], int] | None = None
        self._raised: list[Frame] = []

    @property
    def open(self) -> bool:
        return self._open

    @property
    def waiting(self) -> bool:
        """A reason was read; the threads should follow within a few lines."""
        return bool(self._reason) and self._patience > 0

    def feed(self, line: int, text: str) -> ProcessStack | None:
        """A dump that this line ends, if any."""
        if match := _REASON.match(text):
            ended = self.end()
            self._reason, self._patience = match[1], 8
            return ended
        if match := _THREAD.match(text):
            return self._new_thread(line, match)
        if not self._open:
            self._patience -= 1
            return None
        if (match := _HANDLING.match(text)) and self._threads:
            self._handled = (match, line)
            return None
        if (match := _FRAME.match(text)) and self._threads:
            frames = self._threads[-1].frames if self._handled is None else self._raised
            if len(frames) < _MOST_FRAMES:
                frames.append(Frame(match[3], match[1], int(match[2]) if match[2].isdecimal() else 0))
            return None
        if not text.strip() or text.startswith(("  ...", "  <no Python frame>", "  <tstate", "  ???")):
            return None
        return self.end()

    def _new_thread(self, line: int, match: re.Match[str]) -> ProcessStack | None:
        tid = int(match[2], 16)
        again = any(thread.tid == tid for thread in self._threads)
        ended = self.end() if again or len(self._threads) >= _MOST_THREADS else None
        self._open = True
        self._threads.append(_Thread(tid, match[3] or "", match[1] == "Current thread", line))
        return ended

    def end(self) -> ProcessStack | None:
        threads, self._threads, self._open = self._threads, [], False
        reason, self._reason = self._reason, ""
        handling, self._handled, self._raised = self._handling(), None, []
        if not threads:
            self._reason = reason
            return None
        main = _main(threads)
        return ProcessStack(
            source=self._source,
            tool="faulthandler",
            threads=tuple(
                ThreadStack(
                    "MainThread" if thread is main and not thread.name else thread.name,
                    thread.tid,
                    # The current thread is the one that holds (or last held) the interpreter lock.
                    "gil" if thread.current else "unknown",
                    tuple(thread.frames),
                    main=thread is main,
                    line=thread.line,
                )
                for thread in threads
            ),
            reason=reason,
            line=threads[0].line,
            handling=handling,
        )

    def _handling(self) -> Handling | None:
        if self._handled is None or not self._raised:
            return None
        match, line = self._handled
        own = next(filter(is_user_frame, self._raised), self._raised[0])
        return Handling(match[1], match[2], own, line)


def _main(threads: list[_Thread]) -> _Thread:
    """The one that began in a module; else the last, since the newest threads are printed first."""
    scripts = [thread for thread in threads if thread.frames and thread.frames[-1].function == "<module>"]
    return scripts[-1] if scripts else threads[-1]
