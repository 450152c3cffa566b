"""Stacks by gdb: `thread apply all bt` and `py-bt`."""

from __future__ import annotations

import re

from msgspec import Struct, field

from whichrank.records.dump import Frame
from whichrank.records.stack import ProcessStack, ThreadStack

_ATTACH = re.compile(
    r"^(?:Attaching to (?:process|program: .{1,500}, process)|\[?Inferior \d{1,4} \(process) (\d{1,10})"
)
_THREAD = re.compile(
    r"^Thread (\d{1,9}) \((?:Thread 0x[0-9a-f]{1,16} )?\(?LWP (\d{1,10})\)?"
    r'(?: "([^"]{0,100})")?[^)]{0,40}\){0,3}:?$'
)
_BARE = re.compile(r"^#\d{1,6} {1,3}0x[0-9a-f]{1,16} in ")
_FRAME = re.compile(r"^#(\d{1,6}) {1,3}(?:0x[0-9a-f]{1,16} in )?(.{1,4000})$")
_AT = re.compile(r"^(.{1,1000}):(\d{1,9})$")
_PYTHON_FRAME = re.compile(r'^\s{0,8}File "([^"]{1,1000})", line (\d{1,9}), in (.{1,300})$')
_PYTHON_BT = re.compile(
    r"^#(\d{1,6}) .{0,400}?Frame 0x[0-9a-f]{1,16}, for file (.{1,1000}?), line (\d{1,9}), in (\S{1,300})"
)
_MOST_FRAMES, _MOST_THREADS = 1024, 4096


class _Thread(Struct):
    number: int
    lwp: int
    name: str
    line: int
    frames: list[Frame] = field(default_factory=list)
    python: list[Frame] = field(default_factory=list)


class Parser:
    """Lines in, processes out."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._pid: int | None = None
        self._threads: list[_Thread] = []
        self._line = 0
        self.stacks: list[ProcessStack] = []

    def feed(self, line: int, text: str) -> bool:
        """True where the line is gdb's."""
        if match := _ATTACH.match(text):
            if self._threads:
                self.end()
            self._pid = int(match[1])
        elif match := _THREAD.match(text):
            self._new_thread(line, match)
        elif self._threads and (match := _PYTHON_FRAME.match(text)):
            self._keep(self._threads[-1].python, Frame(match[3], match[1], int(match[2])))
        elif self._threads and (match := _FRAME.match(text)):
            frame = _python_frame(text) or _native_frame(match[2])
            self._keep(self._frames_of(line, text), frame)
        elif _BARE.match(text) and (match := _FRAME.match(text)):
            self._threads.append(_Thread(1, 0, "", line, [_native_frame(match[2])]))
        else:
            return False
        return True

    def _frames_of(self, line: int, text: str) -> list[Frame]:
        """Those of the open thread; frames that nothing announces begin again with another stack."""
        last = self._threads[-1]
        if last.lwp == 0 and text.startswith("#0 "):
            self.end()
            last = _Thread(1, 0, "", line)
            self._threads.append(last)
        return last.frames

    @staticmethod
    def _keep(frames: list[Frame], frame: Frame) -> None:
        if len(frames) < _MOST_FRAMES:
            frames.append(frame)

    def _new_thread(self, line: int, match: re.Match[str]) -> None:
        number, lwp = int(match[1]), int(match[2])
        known = next((t for t in self._threads if t.lwp == lwp), None)
        if known is not None and (known.python or not known.frames):
            self.end()  # the same thread again: another round of the same or of a new process
        elif known is not None:
            # `thread apply all bt` followed by `thread apply all py-bt`: the same stacks, now in Python.
            self._threads.remove(known)
            self._threads.append(known)
            return
        if len(self._threads) < _MOST_THREADS:
            self._threads.append(_Thread(number, lwp, match[3] or "", line))

    def end(self) -> None:
        threads, self._threads = self._threads, []
        pid, self._pid = self._pid, None
        if not threads:
            return
        first = min(threads, key=lambda thread: thread.number)
        # The main thread's number is the process's; gdb counts it as thread 1.
        main = next((t for t in threads if t.lwp == pid), first if first.number == 1 else None)
        pid = pid if pid is not None else main.lwp or None if main is not None else None
        stacks = tuple(
            # Python frames say more than the interpreter's own C frames around them.
            ThreadStack(t.name, t.lwp or None, "unknown", tuple(t.python or t.frames), main=t is main, line=t.line)
            for t in threads
        )
        self.stacks.append(ProcessStack(self._source, "gdb", stacks, pid, line=threads[0].line))


def _python_frame(text: str) -> Frame | None:
    match = _PYTHON_BT.match(text)
    return Frame(match[4], match[2], int(match[3])) if match else None


def _native_frame(text: str) -> Frame:
    """`ncclFoo (args) at file.cc:12`, `poll () from /lib/libc.so.6`; names may hold blanks and templates."""
    name = _name(text)
    rest = text[len(name) :]
    _, at, place = rest.rpartition(" at ")
    if at and (match := _AT.match(place)):
        return Frame(name.strip(), match[1], int(match[2]))
    _, origin, library = rest.rpartition(" from ")
    return Frame(name.strip(), library.strip() if origin else "", 0)


def _name(text: str) -> str:
    """The function: up to the first ` (` outside of template brackets."""
    depth = 0
    for at, letter in enumerate(text):
        if letter == "<":
            depth += 1
        elif letter == ">" and depth:
            depth -= 1
        elif letter == " " and not depth and text.startswith(" (", at):
            return text[:at]
    return text
