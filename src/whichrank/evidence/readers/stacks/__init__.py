"""Stacks of live or dying processes: py-spy (text and JSON), faulthandler, gdb."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from whichrank.evidence.readers.stacks import faulthandler, gdb, pyspy
from whichrank.evidence.text.path_hint import hint_of_path
from whichrank.evidence.text.prefixes import listen
from whichrank.evidence.text.prefixes.clock import Clock
from whichrank.evidence.text.prefixes.voice import Voice
from whichrank.evidence.text.text_file import LONGEST, at_line_start, begins_line, chunks, is_text
from whichrank.model.contracts import Item, Reading
from whichrank.model.errors import UnreadableError
from whichrank.records.stack import ProcessStack

NAME = "stacks"

_MOST_BYTES = 256 << 20
_MOST_JSON = 64 << 20
_LINES = at_line_start(
    rb"Process \d+(?::| \(rank)|Thread (?:0x[0-9A-Fa-f]+|\d+) \((?:active|idle)",
    rb"Thread \d+ \(.{0,60}LWP \d+|\[New LWP \d+\]|Attaching to pro",
    rb"#\d{1,6} {1,3}0x[0-9a-f]{1,16} in ",
)
_FAULTS = re.compile(rb"(?:Current thread|Thread) 0x[0-9a-f]{1,16} .{0,110}\(most recent call first\)")
_TITLED = re.compile(
    rb"(?i:rank|pid)[ _#:=]{0,2}\d{1,10}\b[^\n]{0,50}\n(?: {4}[\w<>.]{1,80} \([^()\n]{1,200}\.py:\d{1,6}\)\r?\n){2}"
)
"""Frames of py-spy below a line that says whose they are, without py-spy's own headings."""
_GIVEN = re.compile(r" --local[_-]rank[= ](\d{1,4})(?= |$)")
"""What DeepSpeed's launcher, and torch's of old, give to every process that they start."""
_SPY_ERRORS = (b"py-spy", b"Permission Denied: Try running again", b"Failed to suspend process")


def sniff(head: bytes, name: str) -> bool:
    """True for text that begins with, or soon has, a stack of one of the tools."""
    if not is_text(head):
        return False
    if head.lstrip()[:1] == b"[" and b'"thread_name"' in head and b'"frames"' in head:
        return True
    if begins_line(_LINES, head) or (b"most recent call first" in head and _FAULTS.search(head)):
        return True
    if b".py:" in head and _TITLED.search(head):
        return True
    lower = name.lower()
    return any(words in head for words in _SPY_ERRORS) and ("stack" in lower or "spy" in lower)


def read(item: Item) -> Reading:
    """One `ProcessStack` per process and dump."""
    if item.head(64).lstrip()[:1] == b"[" and b'"frames"' in item.head(1 << 16):
        return _read_json(item)
    spy, debugger = pyspy.TextParser(item.label), gdb.Parser(item.label)
    faults: dict[tuple[str, int | None], tuple[faulthandler.Builder, Voice]] = {}
    stacks: list[ProcessStack] = []
    titles: dict[int, pyspy.Title] = {}
    above = ""
    whole, clock = True, Clock(item.mtime_ns)
    for number, text in _lines(item):
        if number < 0 or spy.full:
            whole = False
            break
        if spy.feed(number, text):
            continue
        if debugger.feed(number, text):
            if above and (title := pyspy.title_of(above)) is not None:
                titles[number] = title
            above = ""
            continue
        if not text and not faults:
            continue
        spy.entitle(text)
        above = text if text.strip(" `~") else above  # a fence may stand between a title and its stack
        voice = listen(text.encode(), clock)
        key = (voice.speaker, voice.rank)
        if key not in faults:
            if not (faulthandler.begins(voice.text) or voice.text.startswith(("Fatal Python", "Timeout ("))):
                continue
            faults[key] = (faulthandler.Builder(item.label), voice)
        ended = faults[key][0].feed(number, voice.text)
        stacks += [_spoken(ended, voice)] if ended else []
    spy.end()
    debugger.end()
    for builder, voice in faults.values():
        ended = builder.end()
        stacks += [_spoken(ended, voice)] if ended else []
    named = [
        replace(stack, rank=title.rank, local_rank=title.local_rank, host=title.host or stack.host)
        if (title := titles.get(stack.line))
        else stack
        for stack in debugger.stacks
    ]
    return _reading(item, [*spy.stacks, *named, *stacks], spy.errors, whole)


def _read_json(item: Item) -> Reading:
    if item.size > _MOST_JSON:
        raise UnreadableError(f"{item.label}: {item.size >> 20} MiB of JSON stacks are too much")
    stacks, whole = pyspy.parse_json(item.read().decode("utf-8", "replace"), item.label)
    return _reading(item, stacks, [], whole)


def _reading(item: Item, stacks: list[ProcessStack], errors: list[str], whole: bool) -> Reading:
    hint = hint_of_path(item.label)
    records = [
        replace(
            stack,
            rank=hint.rank if stack.rank is None and len(stacks) == 1 else stack.rank,
            local_rank=_local_rank(stack, hint.local_rank if len(stacks) == 1 else None),
        )
        for stack in sorted(stacks, key=lambda stack: stack.line)
    ]
    empty = sum(1 for stack in stacks if not any(thread.frames for thread in stack.threads))
    notes = [f"the tool said: {'; '.join(errors[:3])}"] if errors else []
    notes += [f"{empty} process(es) without a frame"] if empty else []
    notes += ["the file is cut or too long to be read whole"] if not whole else []
    if not records:
        return Reading([], "partial" if errors else "unusable", "; ".join(notes) or "no stack in it")
    return Reading([*records], "partial" if notes else "complete", "; ".join(notes))


def _local_rank(stack: ProcessStack, of_file: int | None) -> int | None:
    """What is said of the stack itself, else what the launcher gave the process, else what the file is named after."""
    if stack.local_rank is not None:
        return stack.local_rank
    given = _GIVEN.search(stack.command)
    return int(given[1]) if given else of_file


def _spoken(stack: ProcessStack, voice: Voice) -> ProcessStack:
    return replace(stack, rank=voice.rank, local_rank=voice.local_rank, pid=voice.pid, host=voice.host)


def _lines(item: Item) -> Iterator[tuple[int, str]]:
    """Numbered lines; number -1 where the file is longer than will be read."""
    number, size = 0, 0
    for chunk in chunks(item.path):
        size += len(chunk)
        text = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in chunk else chunk
        lines = text.removesuffix(b"\n").decode("utf-8", "replace").split("\n")
        yield from ((at, line[:LONGEST]) for at, line in enumerate(lines, number + 1))
        number += len(lines)
        if size > _MOST_BYTES:
            yield -1, ""
            return
