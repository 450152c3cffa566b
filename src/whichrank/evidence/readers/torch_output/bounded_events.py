"""Keeps the events of a file within bounds: the first and the last of each kind, some of each rank."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush, heappushpop
from operator import attrgetter

from whichrank.records.events.base import Event
from whichrank.records.events.communication import NcclError, PeerClosed
from whichrank.records.events.processes import CudaError
from whichrank.records.events.startup import StoreError
from whichrank.records.events.watchdog import WatchdogTerminated, WatchdogTimeout

FIRST = 200
_LAST = 200
_OF_EACH_RANK = 16
_RANKS = 1 << 14
_REPEATING: dict[type[Event], Callable[[Event], object]] = {
    WatchdogTimeout: attrgetter("seq", "op", "ran_ms"),
    NcclError: attrgetter("error", "text", "last_error"),
    WatchdogTerminated: attrgetter("reason"),
    CudaError: attrgetter("what", "file", "at", "reason"),
    PeerClosed: attrgetter("via", "peer"),
    StoreError: attrgetter("what", "key", "server", "port", "joined"),
}
"""Kinds that one failure prints several times (log line, terminate, what()), and what makes them the same."""


class BoundedEvents:
    """Events in, at most a few hundred of a kind (and some of every rank) out, in the order of the file."""

    def __init__(self) -> None:
        self._kept: list[Event] = []
        # Heaps: what looks alike is read later than the rest, and the events nearest to the end are kept.
        self._last: dict[type[Event], list[tuple[int, int, Event]]] = {}
        self._count: dict[type[Event], int] = {}
        self._by_rank: dict[tuple[type[Event], int | None], int] = {}
        self._seen: dict[tuple[object, ...], set[int | None]] = {}

    def add(self, event: Event) -> None:
        if self._repeats(event):
            return
        kind = type(event)
        self._count[kind] = self._count.get(kind, 0) + 1
        of_rank = (kind, event.rank)
        early = self._count[kind] <= FIRST or self._by_rank.get(of_rank, 0) < _OF_EACH_RANK
        if early and (len(self._by_rank) < _RANKS or of_rank in self._by_rank):
            self._by_rank[of_rank] = self._by_rank.get(of_rank, 0) + 1
            self._kept.append(event)
            return
        last = self._last.setdefault(kind, [])
        (heappush if len(last) < _LAST else heappushpop)(last, (event.line, self._count[kind], event))

    def _repeats(self, event: Event) -> bool:
        told = _REPEATING.get(type(event))
        if told is None:
            return False
        same = (type(event), event.group_rank, told(event))
        ranks = self._seen.get(same)
        if ranks is None:
            if len(self._seen) < _RANKS:
                self._seen[same] = {event.rank}
            return False
        if event.rank is None or event.rank in ranks:
            return True
        if len(ranks) < _RANKS:
            ranks.add(event.rank)
        return False

    def events(self) -> list[Event]:
        rest = [item[2] for last in self._last.values() for item in last]
        return sorted([*self._kept, *rest], key=lambda event: event.line)

    def dropped(self) -> int:
        return sum(self._count.values()) - len(self._kept) - sum(len(last) for last in self._last.values())
