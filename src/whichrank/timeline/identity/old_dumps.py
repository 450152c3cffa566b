"""Dumps that were taken long before the others: they tell where a rank was, not where it is.

Under `whichrank run` a rank that can't be asked leaves a dump in reserve, and its own count of what it has issued. A
dump that ends before that count says nothing about where the rank stands: to judge by it would accuse the rank of not
having come to what it has long passed.
"""

from __future__ import annotations

from collections.abc import Sequence

from whichrank.records.dump import Dump
from whichrank.records.events.collectives import OperationsCounted

_BEHIND = 2
_OLD_NS = 5_000_000_000
_WHY = "it was taken {ago:.0f} s before the newest, {behind:,} operations before where the rank is"


def without_old(
    dumps: Sequence[Dump], counted: Sequence[OperationsCounted]
) -> tuple[list[Dump], list[tuple[Dump, str]]]:
    """Those that are current, and the others with the reason. Where all are behind, the job went on meanwhile."""
    told = {event.rank: (event.issued, event.time_ns or 0) for event in counted}
    newest_ns = max((dump.mtime_ns or 0 for dump in dumps), default=0)
    held: dict[int | None, int] = {}
    for dump in dumps:
        held[dump.rank] = held.get(dump.rank, 0) + (int(dump.record_id[-1]) + 1 if len(dump) else 0)
    current: list[Dump] = []
    old: list[tuple[Dump, str]] = []
    for dump in dumps:
        issued, at_ns = told.get(dump.rank, (0, 0))
        behind, taken_ns = issued - held[dump.rank], dump.mtime_ns or 0
        if behind > _BEHIND and taken_ns < min(newest_ns, at_ns) - _OLD_NS:
            old.append((dump, _WHY.format(ago=(newest_ns - taken_ns) / 1e9, behind=behind)))
        else:
            current.append(dump)
    return (current, old) if current else (list(dumps), [])
