"""A text that holds the output of several jobs, taken apart.

People paste a second job "for comparison", append one job's output to another's, or let two jobs write to one file.
Four forms are told apart: banners (`##### job 8811 #####`) that open a part, a tag at the head of every line
(`5512_0 `, `[A] `) that some line explains as a job, or with which another script is started, the units that
systemd starts (`host train-a[812]: `), and services of compose that each have a rank 0 (`train-a-1  | `). Each part
keeps its line numbers: what belongs to another job becomes an empty line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from whichrank.evidence.rewritten import LARGEST, rewritten
from whichrank.model.contracts import Item

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_MOST_JOBS = 16
_UNIT = b".service"
_JOURNAL = re.compile(
    rb"(?:[A-Z][a-z]{2} [ \d]\d [\d:.]{8,15}|\d{4}-\d\d-\d\dT\S{8,21}) \S{1,80} ([\w.@-]{1,80})\[\d{1,10}\]: "
)
_SERVICE = re.compile(rb"([a-z0-9][\w.-]{1,60}) {1,40}\| ")
_RANK_0 = re.compile(rb"(?i)\brank[ =:]{0,2}0\b(?!/)")
_STARTS = re.compile(rb"\]: (?:Started|Starting) ([\w.@-]{1,80})\.service")
_TRAINS = re.compile(rb"(?i)\b(?:rank|step|epoch|loss|nccl|torch\w{0,3}|world_size)|\(\d{1,5}/\d{1,5}\)")
_BANNER = re.compile(rb"^[#=*>~-]{4,}.{0,120}?\bjob(?:[ _-]?id)?\b\W{0,3}(\d{2,12}(?:_\d+)?)", re.IGNORECASE)
_TAGGED = rb"\[?([A-Z]|\d{3,12}(?:_\d{1,6})?)\]?[ \t]{1,40}(?=\S)"
_TAG = re.compile(b"^" + _TAGGED)
_SAYS_JOB = re.compile(rb"\b(?:jobs?|array|tenants?|output of)\b", re.IGNORECASE)
_LAUNCH = re.compile(
    rb"\b(?:torchrun|accelerate launch|deepspeed|python[\d.]{0,5} -m torch\.distributed\.\w{1,12}) "
    rb".{0,200}?([\w./-]{1,120}\.py)\b"
)
_SEVERAL_HOSTS = re.compile(rb"--?(?:nnodes|node[_-]rank|rdzv|master[_-]addr|num_machines|hostfile)")
_WORD = re.compile(rb"\w+")
# At the start of any line of a text: a search that begins with a line break jumps from one to the next.
_RULES = re.compile(rb"\n([#=*>~-]{4}[^\n]{0,396})")
_TAGS = re.compile(b"\n" + _TAGGED)
_FILLED = re.compile(rb"\n[ \t\r\f\v]{0,400}(?=\S)")
_CAPITALS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_HEAD = 400
_LEAST_LINES = 4
_LITTLE = 1 << 16
"""Up to here every line is looked at."""
_SHARE = 0.6
"""Of the lines, so many have a tag where tags are meant."""


def split(item: Item, folder: Callable[[], Path]) -> list[Item]:
    """The parts, each a file of its own in `folder()`; the item alone where it holds one job."""
    if item.size > LARGEST:
        return [item]
    text = item.read()
    heads = b"\n" + text if len(text) <= _LITTLE else _heads(text)
    banners, tags = _may_have_banners(heads), _may_have_tags(heads, text)
    units, services = text.count(_UNIT) > 1, text.count(b" | ") >= 2 * _LEAST_LINES
    if not (banners or tags or units or services):
        return [item]
    lines = text.split(b"\n")
    parts = _by_banner(lines) if banners else _by_tag(lines) if tags else {}
    parts = parts or (_by_unit(lines) if units else {}) or (_by_service(lines) if services else {})
    return [_write(item, folder(), number, job, text) for number, (job, text) in enumerate(parts.items())] or [item]


def _heads(text: bytes) -> bytes:
    """The lines that may be banners or have a tag, as much of each as counts; all lines where those are not few."""
    import numpy as np

    letters = np.frombuffer(text + bytes(5), np.uint8)
    starts = np.append(0, np.flatnonzero(letters[:-5] == ord("\n")) + 1)
    chosen = starts[_beginnings()[letters[starts], letters[starts + 1]]]
    fourth, fifth = letters[chosen + 3], letters[chosen + 4]
    dated = (fourth >= ord("0")) & (fourth <= ord("9")) & (fifth == ord("-"))  # 2026-05-01 …
    chosen = chosen[~dated].tolist()
    if len(chosen) > len(starts) // 4:
        return b"\n" + text
    return b"".join(b"\n" + text[start : start + _HEAD].partition(b"\n")[0] for start in chosen)


@cache
def _beginnings() -> npt.NDArray[np.bool_]:
    """For the first two bytes of a line whether they may be those of a banner or of a tag."""
    import numpy as np

    marks, digits, capitals, behind = (list(some) for some in (b"#=*>~-", b"0123456789", _CAPITALS, b"] \t"))
    table = np.zeros((256, 256), np.bool_)
    for first, second in ((marks, marks), (digits, digits), (capitals, behind), ([ord("[")], digits + capitals)):
        table[np.ix_(first, second)] = True
    return table


def _may_have_banners(heads: bytes) -> bool:
    """Whether several jobs have banners."""
    return 1 < len({found[1] for rule in _RULES.findall(heads) if (found := _BANNER.match(rule))}) <= _MOST_JOBS


def _may_have_tags(heads: bytes, text: bytes) -> bool:
    """Whether several tags head most of the lines."""
    often = [count for count in Counter(_TAGS.findall(heads)).values() if count >= _LEAST_LINES]
    return len(often) > 1 and sum(often) >= _SHARE * len(_FILLED.findall(b"\n" + text))


def _by_banner(lines: list[bytes]) -> dict[str, list[bytes]]:
    """Parts that begin with a line of their own; what stands before the first belongs to it."""
    found = [(at, match[1].decode()) for at, line in enumerate(lines) if (match := _BANNER.match(line[:400]))]
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
    explained = _explained(lines, tags)
    meant = {
        tag
        for tag, often in count.items()
        if often >= _LEAST_LINES and not explained.isdisjoint((tag, tag.partition(b"_")[0]))
    }
    if not 1 < len(meant) <= _MOST_JOBS or sum(count[tag] for tag in meant) < _SHARE * filled:
        return {}
    parts = {tag.decode(): [b""] * len(lines) for tag in sorted(meant)}
    now = next(tag for tag in tags if tag in meant)
    for at, (tag, line) in enumerate(zip(tags, lines, strict=True)):
        now = tag if tag in meant else now
        match = _TAG.match(line[:40]) if tag in meant else None
        parts[now.decode()][at] = line[match.end() :] if match else line
    return parts


def _by_unit(lines: list[bytes]) -> dict[str, list[bytes]]:
    """Lines of each unit that systemd starts here and that trains; what no such unit prints is told of all."""
    heads = [_JOURNAL.match(line[:200]) for line in lines]
    begun = {match[1] for head, line in zip(heads, lines, strict=True) if head and (match := _STARTS.search(line))}
    whose: list[bytes] = []
    trains: Counter[bytes] = Counter()
    for head, line in zip(heads, lines, strict=True):
        unit = head[1] if head else b""
        if unit == b"systemd":
            unit = next((name for name in begun if name + _UNIT in line), b"")
        elif unit in begun and _TRAINS.search(line):
            trains[unit] += 1
        whose.append(unit)
    jobs = sorted(unit for unit, often in trains.items() if often >= _LEAST_LINES)
    if not 1 < len(jobs) <= _MOST_JOBS:
        return {}
    return {
        job.decode(): [
            line if unit == job or unit not in jobs else b"" for unit, line in zip(whose, lines, strict=True)
        ]
        for job in jobs
    }


def _by_service(lines: list[bytes]) -> dict[str, list[bytes]]:
    """Lines of each service in the output of compose, where several have a first rank of their own: the services of one
    job share their ranks."""
    heads = [_SERVICE.match(line[:200]) for line in lines]
    count = Counter(head[1] for head in heads if head)
    first = {head[1] for head, line in zip(heads, lines, strict=True) if head and _RANK_0.search(line[:400])}
    jobs = sorted(name for name in first if count[name] >= _LEAST_LINES)
    if not 1 < len(jobs) <= _MOST_JOBS or sum(count.values()) < _SHARE * sum(bool(line.strip()) for line in lines):
        return {}
    parts = {job: [b""] * len(lines) for job in jobs}
    for at, (head, line) in enumerate(zip(heads, lines, strict=True)):
        name = head[1] if head else line.partition(b" exited with code")[0]
        for job in [name] if name in parts else [] if name in count else jobs:  # what no service said is told of all
            parts[job][at] = line[head.end() :] if head else line
    return {job.decode(): part for job, part in parts.items()}


def _explained(lines: list[bytes], tags: list[bytes]) -> set[bytes]:
    """The words of lines without a tag that speak of jobs: `[A]=job 4410`, `job 7002`, `array 5512`; and the tags of
    lines that start scripts of their own."""
    words = _launched(lines, tags)
    for line, tag in zip(lines, tags, strict=True):
        if not tag and _SAYS_JOB.search(line[:400]):
            words.update(_WORD.findall(line[:400]))
    return words


def _launched(lines: list[bytes], tags: list[bytes]) -> set[bytes]:
    """Tags whose lines start another script each, on one host: the launchers of several hosts start the same one."""
    scripts: dict[bytes, bytes] = {}
    for line, tag in zip(lines, tags, strict=True):
        found = _LAUNCH.search(line[:400]) if tag else None
        if found is not None and _SEVERAL_HOSTS.search(line[:400]) is None:
            scripts.setdefault(tag, found[1])
    return set(scripts) if len(set(scripts.values())) == len(scripts) > 1 else set()


def _write(item: Item, folder: Path, number: int, job: str, lines: list[bytes]) -> Item:
    return replace(rewritten(item, folder, f"job{number}", b"\n".join(lines)), job=job)
