"""A text whose lines all stand in the same wrapping, without it.

A log reaches us with the `^C` of a terminal, coloured by a logger, indented as code in a forum, quoted in a mail
(`> `), line by line in the JSON of a container runtime, or with the time of a collector before the time that the
program wrote. Readers know a line by how it begins, so the wrapping goes before they look. Every line stays at its
place: line numbers in reports are those of the file that was given.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from whichrank.evidence.broken_lines import joined
from whichrank.evidence.rewritten import LARGEST, rewritten
from whichrank.evidence.text.prefixes.ansi import ANSI
from whichrank.model.contracts import Item

_COLOUR = re.compile(ANSI.encode())
_INTERRUPTED = re.compile(rb"^(?:\^C)+(?=[^\s^])", re.MULTILINE)
"""What a terminal shows of Ctrl-C, in front of the next words of the program."""
_FIRST = re.compile(rb"\s{0,4096}(\S)")
_LEVELS = 3
"""How deep a quotation of quotations goes."""
_NEARLY_ALL = 0.95
_FEW = 3
"""Fewer lines show no common wrapping."""
_COLLECTED = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3,9}(?:Z|[+-]\d\d:\d\d) ?(?:std(?:out|err) [FP] )?")
"""The time that `kubectl logs --timestamps` and container runtimes put before a line."""
_TIME = re.compile(rb"(?<![\w:.])\d\d:\d\d:\d\d(?![\w:])")
_SOON = 80
_OFTEN = 0.3
"""So many lines tell the time themselves where the program has a clock in its log."""


class _Logged(msgspec.Struct):
    """One line as Docker's json-file driver stores it."""

    log: str
    stream: str = ""
    time: str = ""


_decoder = msgspec.json.Decoder(_Logged)


def unwrapped(item: Item, folder: Callable[[], Path]) -> Item:
    """The item with the plain text, as a file in `folder()`; the item itself where nothing is wrapped."""
    if item.size > LARGEST:
        return item
    text = item.read()
    plain = _COLOUR.sub(b"", text) if b"\x1b" in text else text
    plain = _INTERRUPTED.sub(b"", plain) if b"^C" in plain else plain
    first = _FIRST.match(plain)
    if first is not None and (first[1] in b"{>" or plain[:1] in b" \t\n\r" or _COLLECTED.match(plain)):
        plain = b"\n".join(_bare(plain.split(b"\n"), first[1]))
    plain = joined(plain)
    return item if plain == text else rewritten(item, folder(), "plain", plain)


def _bare(lines: list[bytes], first: bytes) -> list[bytes]:
    filled = [line for line in lines if line.strip()]
    if len(filled) < _FEW:
        return lines
    if first == b"{":
        lines = _from_json(lines, filled)
        filled = [line for line in lines if line.strip()]
    for _ in range(_LEVELS):
        quoted = sum(line.startswith(b">") for line in filled)
        if quoted < _NEARLY_ALL * len(filled):
            break
        lines = [line[1:].removeprefix(b" ") if line.startswith(b">") else line for line in lines]
        filled = [line for line in lines if line.strip()]
    lines = _to_the_left(lines, filled)
    return _told_once(lines, [line for line in lines if line.strip()])


def _to_the_left(lines: list[bytes], filled: list[bytes]) -> list[bytes]:
    """Without the indentation that all lines share."""
    shared = min((line[: len(line) - len(line.lstrip(b" \t"))] for line in filled), key=len, default=b"")
    if not shared or not all(line.startswith(shared) for line in filled):
        return lines
    return [line.removeprefix(shared) for line in lines]


def _told_once(lines: list[bytes], filled: list[bytes]) -> list[bytes]:
    """Without the time of the collector, where the program tells the time."""
    bare = {line: line[match.end() :] for line in filled if (match := _COLLECTED.match(line))}
    dated = sum(_TIME.search(line, 0, _SOON) is not None for line in bare.values())
    if len(bare) < _NEARLY_ALL * len(set(filled)) or dated < _OFTEN * len(bare):
        return lines
    return [bare.get(line, line) for line in lines]


def _from_json(lines: list[bytes], filled: list[bytes]) -> list[bytes]:
    """The words of each record behind their time; the lines as they are where they are other JSON."""
    found = {}
    for line in filled:
        try:
            record = _decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if record.stream or record.time:
            words = record.log.rstrip("\r\n").replace("\n", " ")
            found[line] = f"{record.time} {words}".lstrip().encode("utf-8", "replace")
    if sum(line in found for line in filled) < _NEARLY_ALL * len(filled):
        return lines
    return [found.get(line, line) for line in lines]
