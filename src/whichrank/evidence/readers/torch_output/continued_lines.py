"""Messages of torch's C++ side that go on over several lines."""

from __future__ import annotations

import re

from msgspec import Struct, field

from whichrank.evidence.readers.torch_output.watchdog import of_work
from whichrank.records.dump import Frame
from whichrank.records.events.collectives import CollectiveStack
from whichrank.records.events.communication import NcclError
from whichrank.records.events.launchers import ActorDied

_WORDS = r"(.{1,200}?)(?: \(run with NCCL_DEBUG\S{0,20} for details\))?(?:, NCCL version ([\d.]{1,20})|$)"
_SYNCHRONOUS = re.compile(r"NCCL error in: \S{1,500}, " + _WORDS)
_ASYNCHRONOUS = re.compile(r"NCCL error: " + _WORDS)
_CLASS = re.compile(r"\b(nccl[A-Z]\w{1,30}): (.{1,300})")
_STACK = re.compile(r"^#(\d{1,4}) (.{1,500}?) from (.{1,1000}):(\d{1,9})\s*$")
_STRANGER = re.compile(
    r"^(?:Exception raised from|frame #|Traceback |terminate called|  what\(\)|={5}|-{5}|[IWEF]\d{3,4} |\s*$)"
)
_OF_ACTOR = re.compile(r"\s{1,8}(pid|name|ip|\w{1,20}): ([\w.:<>-]{1,120})\s{0,8}$")
ACTOR = "actor_id: "
_COLLECTIVE_STACK = "Stack trace of the failed collective"


class ErrorLines(Struct):
    """`NCCL error …`, then the class, then `Last error:` and NCCL's own words."""

    line: int
    event: NcclError
    words: list[str] = field(default_factory=list)
    reading: bool = False
    age: int = 0

    def feed(self, text: str) -> bool:
        """False when the message is over."""
        self.age += 1
        if self.age > 8 or _STRANGER.match(text):
            return False
        if not self.event.error and (match := _CLASS.search(text)):
            self.event.error = match[1]
        elif text.startswith("Last error:"):
            self.reading = True
            if rest := text.removeprefix("Last error:").strip():
                self.words.append(rest[:500])
        elif self.reading:
            self.words.append(text.strip()[:500])
        elif self.event.error:
            return False
        return True

    def end(self) -> NcclError:
        self.event.last_error = "\n".join(self.words)
        return self.event


def nccl_error_begins(line: int, text: str) -> ErrorLines | None:
    match = _SYNCHRONOUS.search(text) or _ASYNCHRONOUS.search(text)
    if match is None:
        return None
    inline = _CLASS.search(text)
    event = NcclError(text=match[1].strip(" ,."), version=match[2] or "", error=inline[1] if inline else "")
    return ErrorLines(line, of_work(event, text))


class StackLines(Struct):
    """`Stack trace of the failed collective:` and the frames below it, innermost first."""

    line: int
    frames: list[Frame] = field(default_factory=list)

    def feed(self, text: str) -> bool:
        match = _STACK.match(text)
        if match is None or int(match[1]) != len(self.frames) or len(self.frames) >= 256:
            return False
        self.frames.append(Frame(match[2], match[3], int(match[4])))
        return True


def collective_stack_begins(line: int, text: str) -> StackLines | CollectiveStack | None:
    if _COLLECTIVE_STACK not in text:
        return None
    if "not found" in text:
        return CollectiveStack(missing=True)
    return StackLines(line)


class ActorLines(Struct):
    """What Ray says of an actor that died, one value on each line."""

    line: int
    values: dict[str, str] = field(default_factory=dict)

    def feed(self, text: str) -> bool:
        match = _OF_ACTOR.match(text)
        if match is None or len(self.values) >= 8:
            return False
        self.values[match[1]] = match[2]
        return True

    def event(self) -> ActorDied | None:
        pid, name = self.values.get("pid", ""), self.values.get("name", "")
        if not pid.isdecimal() or len(pid) > 10 or not name:
            return None
        return ActorDied(name=name, pid=int(pid), host=self.values.get("ip"))
