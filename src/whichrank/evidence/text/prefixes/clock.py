"""The times of a file, and what was learned about how it writes its lines."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from functools import lru_cache

from whichrank.evidence.text.local_prefix import learn_local
from whichrank.evidence.text.own_prefix import hosts_named, learn, unstamped
from whichrank.evidence.text.prefixes.voice import Voice
from whichrank.evidence.text.rank_key import learn_key
from whichrank.model.contracts import Item

_YEAR = re.compile(rb"20(?<!\w20)\d\d(?=-[01]\d-[0-3]\d[ T_]\d\d:)")
_EDGE = 1 << 16
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Clock:
    """Turns stamps into nanoseconds; stamps without a year get the newest one not after `newest_ns`."""

    def __init__(self, newest_ns: int, year: int | None = None) -> None:
        self._newest = _EPOCH + timedelta(microseconds=newest_ns // 1000) + timedelta(days=1)
        self._year = year
        self._days: dict[tuple[int, int, int], int | None] = {}
        self.heard: dict[bytes, Voice] = {}
        """The lines heard last: several readers listen to the same."""
        self.prefix: re.Pattern[str] | None = None
        """What the file puts before its lines to tell its ranks apart, where that was learned."""
        self.first_ranks: dict[str, int] = {}
        """By host, where that prefix has the number of a process on its host."""
        self.hosts: frozenset[str] = frozenset()
        """The hosts that such prefixes name: others of their lines begin with the host alone."""
        self.rank_key: str | None = None
        """The field that holds the rank in lines of JSON, where it is the program's own word (`worker`)."""

    def at(self, day: tuple[int, int, int], clock: tuple[str, str, str], fraction: str, zone: str) -> int | None:
        """Year 0 means: not stated."""
        midnight = self._days.get(day, -1)
        if midnight == -1:
            midnight = self._midnight(*day)
            if len(self._days) < 4096:
                self._days[day] = midnight
        hour, minute, second = int(clock[0]), int(clock[1]), int(clock[2])
        if midnight is None or hour > 23 or minute > 59 or second > 60:
            return None
        shift = 0
        if zone and zone != "Z":
            sign = -1 if zone[0] == "-" else 1
            shift = sign * (int(zone[1:3]) * 60 + int(zone[-2:]))
        seconds = hour * 3600 + (minute - shift) * 60 + second
        return midnight + seconds * 10**9 + int((fraction or "0").ljust(9, "0"))

    def _midnight(self, year: int, month: int, day: int) -> int | None:
        stated = year or self._year
        for guess in [stated] if stated else [self._newest.year, self._newest.year - 1]:
            try:
                moment = datetime(guess, month, day, tzinfo=timezone.utc)
            except ValueError:
                continue
            if stated or moment <= self._newest:
                return (moment - _EPOCH) // timedelta(microseconds=1) * 1000
        return None


@lru_cache(maxsize=4)
def clock_of(item: Item) -> Clock:
    """The clock of a file, with the year that it states and the prefix that it uses."""
    with item.open() as stream:
        edges = stream.read(_EDGE)
        if item.size > _EDGE:
            stream.seek(max(_EDGE, item.size - _EDGE))
            edges += b"\n" + stream.read(_EDGE)
    return _taught(Clock(item.mtime_ns, stated_year(edges)), edges, item.label.rpartition("/")[2])


def prefix_of(edges: bytes) -> Clock:
    """A clock that knows the prefixes of these lines, and no times."""
    return _taught(Clock(0), edges)


def _taught(clock: Clock, edges: bytes, file: str = "") -> Clock:
    clock.prefix = learn(edges, file)
    if b"rank" in edges.lower() and (clock.prefix is None or "rank" not in clock.prefix.groupindex):
        local = learn_local(unstamped(edges))
        clock.prefix, clock.first_ranks = local or (clock.prefix, {})
    clock.hosts = hosts_named(clock.prefix, edges) if clock.prefix is not None else frozenset()
    clock.rank_key = learn_key(edges)
    return clock


def stated_year(edges: bytes) -> int | None:
    """The newest year that dated stamps in these bytes state."""
    years = [int(match) for match in _YEAR.findall(edges)]
    return max(years, default=None)
