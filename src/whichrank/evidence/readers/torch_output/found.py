"""What a matcher of messages hands over: an event, before it is known who spoke it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from whichrank.records.events.base import Event, OfGroup

Read = Callable[[str], Event | None]
Matcher = tuple[str, Read]
G = TypeVar("G", bound=OfGroup)
"""Words that must stand in the line, and what reads it then."""

# 2.4 `[PG 2 Rank 3]`, 2.5 `[PG 2 (dp) Rank 3]`, later `[PG ID 2 PG GUID 7(dp) Rank 3]`, before `[Rank 3]`.
_GROUP = re.compile(
    r"\[(?:PG ID (\d{1,9}) PG GUID ([^\s(\]]{1,200})|PG (\S{1,200}))? ?"
    r"(?:\(([^)\]]{0,200})\))? ?Rank (\d{1,7})\]"
)


def of_group(event: G, text: str) -> G:
    """The event with the group's names in a line's bracket, and the rank WITHIN that group."""
    match = _GROUP.search(text)
    if not match:
        return event
    if match[1] is not None:
        event.pg_id, event.pg_guid = int(match[1]), match[2]
    elif match[3] is not None:
        event.pg_name = match[3]
    event.pg_desc = match[4] or ""
    event.group_rank = int(match[5])
    return event


def group_rank_of(text: str) -> int | None:
    """The rank WITHIN a group, by a line's bracket."""
    return number_after(text, _GROUP, 5)


def number_after(text: str, pattern: re.Pattern[str], group: int = 1) -> int | None:
    match = pattern.search(text)
    return int(match[group]) if match else None


def number_list(text: str) -> tuple[int, ...]:
    """`0, 1, 5` or `2 3` or Slurm's `0-3,5` as numbers, at most 65,536."""
    numbers: list[int] = []
    for first, last in re.findall(r"(\d{1,9})(?:-(\d{1,9}))?", text):
        numbers.extend(range(int(first), min(int(last or first), int(first) + 65536) + 1))
        if len(numbers) > 65536:
            return tuple(numbers[:65536])
    return tuple(numbers)
