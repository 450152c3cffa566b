"""Whether a log ends with the regular lines of a job at work: steps, throughput, requests served.

A job that works prints the same line again and again with other numbers. Training loops, servers and evaluations each
have their own words for it, so the line is not known beforehand: it is the one that the end of the file is made of.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import lru_cache

from whichrank.evidence.text.tail import tail
from whichrank.evidence.text.text_file import is_text
from whichrank.model.contracts import Item, Reading
from whichrank.model.evidence import Ref
from whichrank.records import guard
from whichrank.records.events.run_state import AtWork

NAME = "pulse"
BESIDE = True

_TAIL, _LARGEST = 1 << 16, 64 << 20
_OFTEN = 8
"""Repetitions that make a pulse."""
_AT_THE_END = 6
"""The last of them is among this many lines."""
_LONGEST = 600
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_WORKS = re.compile(
    r"\b(?:step|iter(?:ation)?|epoch|batch|loss|throughput|tokens?|samples|reward|consumed|requests?|running-req)\b"
    r"[^\n]{0,30}?\d|\d ?(?:it/s|s/it|tok(?:ens?)?/s|samples/s|reqs)\b|\" 200\b",
    re.IGNORECASE,
)
_TROUBLE = re.compile(
    r"\b(?:error|fail\w*|warn\w*|retry\w*|wait(?:ing)? for|stall\w*|timed? ?out|stuck|hang|abort\w*|killed"
    r"|nan(?! iterations)|inf|heartbeat|reconnect\w*|refused)\b",
    re.IGNORECASE,
)
_WORDS = (
    "step", "iter", "epoch", "batch", "loss", "throughput", "tok", "samples", "reward", "consumed", "request",
    "running-req", "it/s", "s/it", "reqs", '" 200',
)  # fmt: skip
"""In lower case: a line at work has one of them. A quick look before the patterns."""
_MOST_SHAPES = 1 << 12
_SERVED = '" 200'
_NOT_LOGS = (".py", ".md", ".rst", ".html", ".csv", ".json", ".yaml", ".yml", ".ini", ".toml", ".sh", ".env")


def sniff(head: bytes, name: str) -> bool:
    """Any text that may be a log."""
    if not is_text(head) or name.lower().endswith(_NOT_LOGS) or head.startswith(guard.FIRST):
        return False
    try:
        return bool(head[:-4].decode())
    except UnicodeDecodeError as error:
        return len(head) - error.start < 8  # the head ends within a character


def read(item: Item) -> Reading:
    """One event where the end of the file is a pulse."""
    if item.size > _LARGEST:
        return Reading([], "ignored", "too long to count its lines for this")
    first, lines = _last_lines(item)
    places: dict[str, list[int]] = defaultdict(list)
    maybe = [at for at, line in enumerate(lines) if any(map(line.lower().__contains__, _WORDS))]
    for at in maybe if len(maybe) >= _OFTEN else ():
        line = lines[at]
        shape = _NUMBER.sub("#", line)
        if _at_work(line) if _SERVED in line else _shape_at_work(shape):
            places[shape[:80]].append(at)
    beats = max(places.values(), key=len, default=[])
    behind = sum(bool(line.strip()) for line in lines[beats[-1] + 1 :]) if beats else 0
    if len(beats) < _OFTEN or behind >= _AT_THE_END or len({lines[at] for at in beats}) < len(beats) // 2:
        return Reading([], "ignored", "does not end with the lines of a job at work")
    # A server that still answers has survived all that stands above; a loop may take some turns to notice.
    served = max((at for at in maybe if _SERVED in lines[at]), default=-1)
    since = max(beats[-_OFTEN], served)
    ref = Ref(item.label, f"line {first + beats[-1]}", lines[beats[-1]].strip()[:300])
    return Reading([AtWork(ref=ref, line=first + since)], "complete")


def _at_work(line: str) -> bool:
    """Lines of one shape are so alike, but for those that tell a status of HTTP."""
    return _WORKS.search(line) is not None and not _TROUBLE.search(line)


@lru_cache(_MOST_SHAPES)
def _shape_at_work(shape: str) -> bool:
    """The same for all lines that differ in numbers only: logs repeat theirs."""
    return _at_work(shape.replace("#", "0"))


def _last_lines(item: Item) -> tuple[int, list[str]]:
    """The number of the first line of the tail, and its lines."""
    first, text = tail(item, _TAIL)
    skipped = max(0, len(text) - _TAIL)  # a small text comes whole
    first += text.count(b"\n", 0, skipped)
    lines = text[skipped:].decode("utf-8", "replace").split("\n")
    return first, [line[-_LONGEST:] if "\r" in line else line[:_LONGEST] for line in lines]
