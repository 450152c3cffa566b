"""A text that holds the output of several jobs, taken apart.

People paste a second job "for comparison", append one job's output to another's, or let two jobs write to one file.
Two forms are told apart: banners (`##### job 8811 #####`) that open a part, and a tag at the head of every line
(`5512_0 `, `[A] `) that some line explains as a job. Each part keeps its line numbers: what belongs to another job
becomes an empty line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from whichrank.model.contracts import Item

LARGEST = 8 << 20
"""A file that is larger than this is the output of a job, not a collection that somebody made."""
_MOST_JOBS = 16
# What a banner or the line that explains a tag says.
_NAMED = re.compile(rb"job|JOB|Job|array|ARRAY|Array|tenant|TENANT|Tenant|utput of|UTPUT OF")
_BANNER = re.compile(rb"^[#=*>~-]{4,}.{0,120}?\bjob(?:[ _-]?id)?\b\W{0,3}(\d{2,12}(?:_\d+)?)", re.IGNORECASE)
_TAG = re.compile(rb"^\[?([A-Z]|\d{3,12}(?:_\d{1,6})?)\]?[ \t]+(?=\S)")
_LEAST_LINES = 4
_SHARE = 0.6
"""Of the lines, so many have a tag where tags are meant."""


def split(item: Item, folder: Callable[[], Path]) -> list[Item]:
    """The parts, each a file of its own in `folder()`; the item alone where it holds one job."""
    if item.size > LARGEST:
        return [item]
    text = item.read()
    if not _NAMED.search(text):
        return [item]
    lines = text.split(b"\n")
    parts = _by_banner(lines) or _by_tag(lines)
    if not 1 < len(parts) <= _MOST_JOBS:
        return [item]
    return [_write(item, folder(), number, job, text) for number, (job, text) in enumerate(parts.items())]


def _by_banner(lines: list[bytes]) -> dict[str, list[bytes]]:
    """Parts that begin with a line of their own; what stands before the first belongs to it."""
    found = [(at, match[1].decode()) for at, line in enumerate(lines) if (match := _BANNER.match(line[:400]))]
    if len({job for _, job in found}) < 2:
        return {}
    parts: dict[str, list[bytes]] = {}
    for number, (at, job) in enumerate(found):
        begin = 0 if number == 0 else at
        end = found[number + 1][0] if number + 1 < len(found) else len(lines)
        part = parts.setdefault(job, [b""] * len(lines))
        part[begin:end] = lines[begin:end]
    return parts


def _by_tag(lines: list[bytes]) -> dict[str, list[bytes]]:
    """Lines by the tag at their head; a line without one goes with the line above it."""
    tags = [match[1] if (match := _TAG.match(line[:40])) else b"" for line in lines]
    count = Counter(tag for tag in tags if tag)
    filled = sum(bool(line.strip()) for line in lines)
    meant = {tag for tag, often in count.items() if often >= _LEAST_LINES and _is_explained(tag, lines, tags)}
    if len(meant) < 2 or sum(count[tag] for tag in meant) < _SHARE * filled:
        return {}
    parts = {tag.decode(): [b""] * len(lines) for tag in sorted(meant)}
    now = next(tag for tag in tags if tag in meant)
    for at, (tag, line) in enumerate(zip(tags, lines, strict=True)):
        now = tag if tag in meant else now
        match = _TAG.match(line[:40]) if tag in meant else None
        parts[now.decode()][at] = line[match.end() :] if match else line
    return parts


def _is_explained(tag: bytes, lines: list[bytes], tags: list[bytes]) -> bool:
    """Whether a line without a tag says that this is a job: `[A]=job 4410`, `job 7002`, `array 5512`."""
    names = {tag, tag.partition(b"_")[0]}
    said = re.compile(rb"\b(?:jobs?|array|tenants?|output of)\b", re.IGNORECASE)
    for line, own in zip(lines, tags, strict=True):
        if not own and said.search(line[:400]) and any(re.search(rb"\b%b\b" % name, line[:400]) for name in names):
            return True
    return False


def _write(item: Item, folder: Path, number: int, job: str, lines: list[bytes]) -> Item:
    target = folder / f"{item.path.name}.job{number}"
    while target.exists():
        target = target.with_name(target.name + "_")
    target.write_bytes(b"\n".join(lines))
    return replace(item, path=target, size=target.stat().st_size, job=job)
