"""A text that holds several files, taken apart.

People put what they have into one ticket or one paste: each file below its name, as `tail` and `more` print it, or as
a heading above a fence. Names tell whose a file is (`dmesg_node7.txt`, `rank3.err`) and what it is, so each becomes a
file of its own again. Every part keeps its line numbers: what belongs to another part becomes an empty line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from whichrank.evidence.packed import printable
from whichrank.evidence.rewritten import LARGEST, rewritten
from whichrank.model.contracts import Item

_MOST = 256
_ENDINGS = rb"log|out|err|txt|stdout|stderr|dump|py|sh|ya?ml|jsonl?|cfg|conf|csv|md"
_NAME = rb"((?:[\w.@+-]{1,80}/){0,8}[\w.@+-]{1,120}\.(?:" + _ENDINGS + rb"))"
_RULE = rb"[=#*-]{3,60}"
_HEADED = re.compile(
    rb"(?:==> " + _NAME + rb" <==|" + _RULE + rb" (?:file: ?)?" + _NAME + b" " + _RULE + rb")\s*$", re.IGNORECASE
)
"""`==> rank3.err <==`, `===== dmesg_node7.txt =====`."""
_TITLE = re.compile(rb"(?:#{1,6} |\*\*)?(?:file: ?)?[`\"]?" + _NAME + rb"[`\"]?:?(?:\*\*)?:?\s*$", re.IGNORECASE)
"""`### rank3.err`, `**rank3.err**:`, `rank3.err:`; it counts above a fence alone."""
_FENCE = re.compile(rb"\s{0,3}(```|~~~)")
_MORE, _ALONE = re.compile(rb":{10,20}\s*$"), re.compile(_NAME + rb"\s*$")
"""`more` puts a name between two lines of colons."""
_NUMBER = re.compile(r"\d+")
_FENCES, _SOON = (b"\n```", b"\n~~~"), 3
"""Lines between a title and its fence."""


def split(item: Item, folder: Callable[[], Path]) -> list[Item]:
    """The parts, each a file of its own in `folder()`; the item alone where it holds one."""
    if item.size > LARGEST:
        return [item]
    text = item.read()
    fenced = any(fence in text for fence in _FENCES)
    if not (fenced or b"==> " in text or b"\n:::::" in text or _may_be_headed(text)):
        return [item]
    lines = text.split(b"\n")
    parts = _below_headings(lines)
    if not parts and fenced:
        parts = _in_fences(lines)
    if not 1 < len(parts) <= _MOST:
        return [item]
    kept = [(name, part) for name, part in parts.items() if any(part)]
    return [_write(item, folder(), number, name, part) for number, (name, part) in enumerate(kept)]


def _may_be_headed(text: bytes) -> bool:
    return any(sign in text for sign in (b"=== ", b"### ", b"*** ", b"--- "))


def _below_headings(lines: list[bytes]) -> dict[str, list[bytes]]:
    """Each name stands in a line of its own, and its file goes to the next name."""
    named: dict[int, tuple[int, str]] = {}
    for at, line in enumerate(lines):
        if match := _HEADED.match(line[:300]):
            named[at] = (at + 1, (match[1] or match[2]).decode())
        elif _MORE.match(line[:40]) and (match := _ALONE.match(b"".join(lines[at + 1 : at + 2])[:300])):
            named[at] = (at + 3, match[1].decode())
    # Names that differ in their numbers alone head the output of hosts or ranks: that is read in one piece.
    if len({_NUMBER.sub("#", name) for _, name in named.values()}) < 2:
        return {}
    parts: dict[str, list[bytes]] = {}
    begins = sorted(named)
    if any(line.strip() for line in lines[: begins[0]]):
        _fill(parts, "", lines, 0, begins[0])
    for begin, end in zip(begins, [*begins[1:], len(lines)], strict=True):
        first, name = named[begin]
        _fill(parts, name, lines, first, end)
    return parts


def _in_fences(lines: list[bytes]) -> dict[str, list[bytes]]:
    """What stands in a fence below a name is that file; all the rest stays a document."""
    parts: dict[str, list[bytes]] = {"": list(lines)}
    name, since, fence, begin = "", 0, b"", 0
    for at, line in enumerate(lines):
        mark = _FENCE.match(line[:8])
        if fence:
            if mark and mark[1] == fence:
                if name:
                    _fill(parts, name, lines, begin, at)
                    parts[""][begin:at] = [b""] * (at - begin)
                name, fence = "", b""
        elif mark:
            fence, begin = mark[1], at + 1
            name = name if at - since <= _SOON else ""
        elif match := _TITLE.match(line[:300]):
            name, since = match[1].decode(), at
    return parts if len(parts) > 1 else {}


def _fill(parts: dict[str, list[bytes]], name: str, lines: list[bytes], begin: int, end: int) -> None:
    part = parts.setdefault(name, [b""] * len(lines))
    part[begin:end] = lines[begin:end]


def _write(item: Item, folder: Path, number: int, name: str, lines: list[bytes]) -> Item:
    label = f"{item.label}/{printable(name)}" if name else item.label
    return replace(rewritten(item, folder, f"part{number}", b"\n".join(lines)), label=label)
