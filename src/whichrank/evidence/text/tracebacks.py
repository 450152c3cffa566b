"""Python tracebacks put together again, also when several processes write into one file."""

from __future__ import annotations

import re

from msgspec import Struct, field

from whichrank.records.dump import Frame

HEADER = "Traceback (most recent call last)"
_FILE = re.compile(r'^(\s*)File "([^"]{1,1000})", line (\d{1,9})(?:, in (.{1,500}))?$')
_BOX = re.compile(r"^│ (\S.{0,500}?):(\d{1,9}) in (\S{1,200})")
_EXCEPTION = re.compile(r"^([A-Za-z_][\w.]{0,300})(?:: ?(.*))?$")
_THREAD = re.compile(r"^Exception in thread (.{1,200}?)(?: \(.{0,200}\))?:?$")
_BEGIN = HEADER.encode()
_SURE = re.compile(r"(?:Error|Exception|Interrupt|Exit|Warning|Timeout|Expired|Empty|Full|Failed|StopIteration)$")
_REPEATED = re.compile(r"^\s*\[Previous line repeated (\d{1,9}) more times?\]")
# What surely begins another message: a log prefix, a NCCL line, the agent's table, a new exception.
_OTHER = re.compile(
    r"^(?:\[[\w ]|[IWEF]\d{3,4} |\d{4}-\d\d-\d\d|={5}|-{5}|\*{5}|#\d|terminate called|  what\(\)|frame #|"
    r"Exception raised from|Exception ignored|Exception in thread|srun: |slurmstepd: |\S{1,300} NCCL |\{|"
    r"\s{0,4}\d{1,3}%\|)"
)
_MOST_FRAMES = 256
_MOST_MESSAGE = 40
_MOST_STRANGERS = 40


class Trace(Struct):
    """A traceback in the making: of one voice."""

    line: int
    quote: str
    thread: str = ""
    ignored: bool = False
    logged: bool = False
    """Whether a logger's warning or error is the line above."""
    after: str = ""
    """Type of the exception that was being handled, for chained ones."""
    after_ns: int | None = None
    """The newest time heard before it."""
    headless: bool = False
    frames: list[Frame] = field(default_factory=list)
    dropped: int = 0
    indent: int = 0
    type: str = ""
    message: list[str] = field(default_factory=list)
    boxed: bool = False
    strangers: int = 0
    """Lines of others since the last own one, in files where no prefix tells who spoke."""
    done: bool = False

    def feed(self, text: str, prefixed: bool) -> bool:
        """Takes a line; False when it is not part of this traceback (which is then `done`)."""
        if self.type:
            return self._feed_message(text, prefixed)
        if (match := _FILE.match(text)) is not None:
            self._add(Frame((match[4] or "").strip(), match[2], int(match[3])))
            self.indent = len(match[1])
            self.strangers = 0
            return True
        if self.boxed or text.startswith(("│", "╭")):
            return self._feed_box(text)
        indent = len(text) - len(text.lstrip(" "))
        if self.frames and indent > self.indent:
            return True
        if _REPEATED.match(text) or not text.strip():
            self.done = not text.strip() and bool(self.frames) and not prefixed
            return not self.done
        return self._feed_exception(text.strip(), indent)

    def _add(self, frame: Frame) -> None:
        if len(self.frames) < _MOST_FRAMES:
            self.frames.append(frame)
        else:  # the innermost ones say more: keep a window of both ends
            self.dropped += 1
            self.frames[_MOST_FRAMES // 2 :] = [*self.frames[_MOST_FRAMES // 2 + 1 :], frame]

    def _feed_box(self, text: str) -> bool:
        self.boxed = True
        if match := _BOX.match(text):
            self._add(Frame(match[3], match[1], int(match[2])))
        elif text.startswith("╰"):
            self.boxed = False
        return True

    def _feed_exception(self, text: str, indent: int) -> bool:
        if self.headless and text.startswith("Message: "):
            # The stack of a call to Python's logging that failed itself: nobody raised what is logged.
            self.frames.clear()
            self.done = True
            return False
        match = _EXCEPTION.match(text)
        if match is not None and indent <= max(self.indent, 2) and self._is_exception(match[1]):
            self.type = match[1]
            self.message.append((match[2] or "")[:4000])
            return True
        self.strangers += 1
        self.done = self.strangers > _MOST_STRANGERS
        return False

    def _is_exception(self, name: str) -> bool:
        if _SURE.search(name):
            return True
        last = name.rsplit(".", 1)[-1]
        # Right under the frames any class will do; further down only what is called like one.
        close = bool(self.frames) and not self.strangers
        return close and ("." in name or (last[:1].isupper() and not last.isupper()))

    def _feed_message(self, text: str, prefixed: bool) -> bool:
        """With a rank's prefix on each line the end is sure; without, the next known shape ends it."""
        over = len(self.message) > _MOST_MESSAGE or HEADER in text or text.startswith("The above exception")
        over = over or text.startswith("During handling of the above") or bool(_OTHER.match(text))
        if not prefixed:
            over = over or not text.strip() or len(self.message) > 12
        if over:
            self.done = True
            return False
        self.message.append(text.rstrip()[:1000])
        return True

    @property
    def truncated(self) -> bool:
        return not self.type

    def says_code(self, text: str) -> bool:
        """True where the line is quoted source, which must not be read as a message."""
        indent = len(text) - len(text.lstrip(" "))
        return not self.type and bool(self.frames) and (indent > self.indent or self.boxed)


def begins(text: str) -> bool:
    """True where a traceback starts here, with its header or in its middle."""
    return HEADER in text or _FILE.match(text) is not None


_UNDISTURBED = re.compile(
    rb"([^\n]{0,200}?)Traceback \(most recent call last\)[^\n]{0,167}\n(?:\1  [^\n]{0,4096}\n){1,256}"
    rb"\1(?P<type>[A-Za-z_][\w.]{0,300})(?::[^\n]*|\r?)(?=\n)"
)
"""A whole one behind a prefix that all of its lines have: header, frames, and the line of the exception."""


def start(line: int, text: str) -> Trace:
    trace = Trace(line, text.strip()[:300], headless=HEADER not in text)
    if trace.headless:
        trace.feed(text, prefixed=False)
    elif "╭" in text:
        trace.boxed = True
    else:
        trace.indent = len(text) - len(text.lstrip(" ")) + 2
    return trace


def block(text: bytearray, start: int, end: int, size: int) -> tuple[int, int] | None:
    """Where a traceback ends that begins in this line and stands undisturbed: the end of the exception's line, and
    of its class. None where lines of others are between, or the prefix of the lines changes."""
    if text.find(_BEGIN, start, end) < 0:
        return None
    found = _UNDISTURBED.match(text, start, size)
    return (found.end(), found.end("type")) if found else None


def thread_named(text: str) -> str | None:
    match = _THREAD.match(text)
    return match[1] if match else None


def parse(text: str) -> Trace | None:
    """The last traceback of a text, such as the call stack in an `error.json`."""
    trace: Trace | None = None
    for number, line in enumerate(text.splitlines()[:4096], 1):
        if HEADER in line or (trace is None and begins(line)):
            trace = start(number, line)
        elif trace is not None and not trace.done:
            trace.feed(line, prefixed=True)
    return trace
