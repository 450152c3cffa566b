"""Several groups that stand still at once, by the watchdogs' lines alone.

On a GPU the operations of one stream wait for each other. A job in which every rank waits in the default group may
hang because of another group: one member never came to it, or ranks entered the two in different orders.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations
from typing import TYPE_CHECKING

from msgspec import Struct

from whichrank.records.events.base import OfGroup
from whichrank.records.events.watchdog import WatchdogProgress

if TYPE_CHECKING:
    from whichrank.timeline.case import Case

_DEFAULT = ("", "0", "default_pg")
_AT_ONCE_NS = 15_000_000_000
"""Watchdogs of one hang speak within this time; what is aborted later counts as completed."""


class Standstill(Struct, frozen=True):
    """A group that stands still."""

    title: str
    waiting: dict[int, WatchdogProgress]
    missing: tuple[int, ...]
    """Members that wait in another group, and not in this one."""


class Crossing(Struct, frozen=True):
    """Two groups that all of their members wait in at once."""

    first: Standstill
    second: Standstill
    ranks: tuple[int, ...]
    """Members of both."""


def left_out(case: Case) -> Standstill | None:
    """The group that few members never came to, while they and all others wait together elsewhere."""
    found = [group for group in _groups(case) if group.missing]
    return found[0] if len(found) == 1 else None


def crossing(case: Case) -> Crossing | None:
    """Two groups of which nobody is missing, and each of which waits for the other's ranks."""
    full = [g for g in _groups(case) if not g.missing and len({e.work for e in g.waiting.values()}) == 1]
    pairs = [(a, b, tuple(sorted(a.waiting.keys() & b.waiting.keys()))) for a, b in combinations(full, 2)]
    a, b, ranks = min((pair for pair in pairs if len(pair[2]) > 1), key=lambda p: len(p[2]), default=(None, None, ()))
    return Crossing(a, b, ranks) if a is not None and b is not None else None


def alone_elsewhere(case: Case, waiting: Collection[int]) -> dict[int, WatchdogProgress]:
    """The few that timed out in a smaller group, each without any other member of it, while these wait in the default
    group."""
    found: dict[int, WatchdogProgress] = {}
    groups: dict[str, set[int]] = {}
    for event in case.events(WatchdogProgress):
        if event.rank is not None and event.pg_guid and (event.pg_desc or event.pg_name) not in _DEFAULT:
            groups.setdefault(event.pg_guid, set()).add(event.rank)
            found.setdefault(event.rank, event)
    alone = {rank: event for rank, event in found.items() if len(groups[event.pg_guid]) == 1 and rank not in waiting}
    return alone if len(alone) == len(found) and 2 * len(alone) < len(waiting) else {}


def _groups(case: Case) -> list[Standstill]:
    """Every group in which ranks timed out, and its members that wait elsewhere."""
    told = [e for e in case.events(WatchdogProgress) if e.rank is not None and e.work is not None and e.time_ns]
    start = min((e.time_ns or 0 for e in told), default=0)
    waiting: dict[str, dict[int, WatchdogProgress]] = {}
    for event in told:
        if (event.time_ns or 0) - start <= _AT_ONCE_NS and event.pg_guid and event.rank is not None:
            waiting.setdefault(event.pg_guid, {}).setdefault(event.rank, event)
    members: dict[str, set[int]] = {}
    for spoken in case.log_events:
        if isinstance(spoken, OfGroup) and spoken.pg_guid and spoken.rank is not None:
            members.setdefault(spoken.pg_guid, set()).add(spoken.rank)
    found = []
    for guid, here in waiting.items():
        elsewhere = {rank for other, ranks in waiting.items() if other != guid for rank in ranks}
        missing = members[guid] - here.keys()
        together = missing and missing <= elsewhere and here.keys() <= elsewhere
        name = next(iter(here.values())).pg_desc or guid
        title = "the default group" if name in ("0", "default_pg") else f"group {name}"
        if not missing or (together and len(missing) <= len(here)):
            found.append(Standstill(title, here, tuple(sorted(missing))))
    return found
