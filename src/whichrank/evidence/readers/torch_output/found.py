"""What a matcher of messages hands over: a kind of event and its values."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from whichrank.records.log import EventKind, Value


@dataclass(slots=True)
class Found:
    """One statement in one line, before it is known who spoke it."""

    kind: EventKind
    data: dict[str, Value] = field(default_factory=dict)
    rank: int | None = None
    group_rank: int | None = None
    local_rank: int | None = None
    pid: int | None = None
    host: str | None = None


Read = Callable[[str], Found | None]
Matcher = tuple[str, Read]
"""Words that must stand in the line, and what reads it then."""

# 2.4 `[PG 2 Rank 3]`, 2.5 `[PG 2 (dp) Rank 3]`, later `[PG ID 2 PG GUID 7(dp) Rank 3]`, before `[Rank 3]`.
_GROUP = re.compile(
    r"\[(?:PG ID (\d{1,9}) PG GUID ([^\s(\]]{1,200})|PG (\S{1,200}))? ?"
    r"(?:\(([^)\]]{0,200})\))? ?Rank (\d{1,7})\]"
)


def group_of(text: str) -> tuple[dict[str, Value], int | None]:
    """The group's names in a line's bracket, and the rank WITHIN that group."""
    match = _GROUP.search(text)
    if not match:
        return {}, None
    data: dict[str, Value] = {}
    if match[1] is not None:
        data["pg_id"], data["pg_guid"] = int(match[1]), match[2]
    elif match[3] is not None:
        data["pg_name"] = match[3]
    if match[4]:
        data["pg_desc"] = match[4]
    return data, int(match[5])


def number_after(text: str, pattern: re.Pattern[str]) -> int | None:
    match = pattern.search(text)
    return int(match[1]) if match else None


def put_numbers(data: dict[str, Value], text: str, patterns: dict[str, re.Pattern[str]]) -> None:
    """Each pattern's first group as a number, where the line has it."""
    for key, pattern in patterns.items():
        value = number_after(text, pattern)
        if value is not None:
            data[key] = value


def number_list(text: str) -> list[int]:
    """`0, 1, 5` or `2 3` or Slurm's `0-3,5` as numbers, at most 65,536."""
    numbers: list[int] = []
    for first, last in re.findall(r"(\d{1,9})(?:-(\d{1,9}))?", text):
        numbers.extend(range(int(first), min(int(last or first), int(first) + 65536) + 1))
        if len(numbers) > 65536:
            return numbers[:65536]
    return numbers
