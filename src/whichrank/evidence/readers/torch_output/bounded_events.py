"""Keeps the events of a file within bounds: the first and the last of each kind, some of each rank."""

from __future__ import annotations

from heapq import heappush, heappushpop

from whichrank.records.log import LogEvent

FIRST = 200
_LAST = 200
_OF_EACH_RANK = 16
_RANKS = 1 << 14
_REPEATING = {
    "watchdog_timeout": ("seq", "op", "ran_ms"),
    "nccl_error": ("class", "text", "last_error"),
    "watchdog_terminated": ("reason",),
    "cuda_error": ("what", "file", "at", "reason"),
    "peer_closed": ("via", "peer"),
    "store_error": ("what", "key", "host", "port", "joined"),
}
"""Kinds that one failure prints several times (log line, terminate, what()), and what makes them the same."""


class BoundedEvents:
    """Events in, at most a few hundred of a kind (and some of every rank) out, in the order of the file."""

    def __init__(self) -> None:
        self._kept: list[LogEvent] = []
        # Heaps: what looks alike is read later than the rest, and the events nearest to the end are kept.
        self._last: dict[str, list[tuple[int, int, LogEvent]]] = {}
        self._count: dict[str, int] = {}
        self._by_rank: dict[tuple[str, int | None], int] = {}
        self._seen: dict[tuple[object, ...], set[int | None]] = {}

    def add(self, event: LogEvent) -> None:
        if self._repeats(event):
            return
        kind = event.kind
        self._count[kind] = self._count.get(kind, 0) + 1
        of_rank = (kind, event.rank)
        early = self._count[kind] <= FIRST or self._by_rank.get(of_rank, 0) < _OF_EACH_RANK
        if early and (len(self._by_rank) < _RANKS or of_rank in self._by_rank):
            self._by_rank[of_rank] = self._by_rank.get(of_rank, 0) + 1
            self._kept.append(event)
            return
        last = self._last.setdefault(kind, [])
        (heappush if len(last) < _LAST else heappushpop)(last, (event.line, self._count[kind], event))

    def _repeats(self, event: LogEvent) -> bool:
        keys = _REPEATING.get(event.kind)
        if keys is None:
            return False
        same = (event.kind, event.group_rank, *(str(event.data.get(key, "")) for key in keys))
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

    def events(self) -> list[LogEvent]:
        rest = [item[2] for last in self._last.values() for item in last]
        return sorted([*self._kept, *rest], key=lambda event: event.line)

    def dropped(self) -> int:
        return sum(self._count.values()) - len(self._kept) - sum(len(last) for last in self._last.values())
