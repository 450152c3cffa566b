"""Of which host and rank the lines of a text are, by the headings and typed commands in it."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

from whichrank.timeline.identity.addresses import by_ending
from whichrank.timeline.identity.who import by_short_name, family, short_name

if TYPE_CHECKING:
    from whichrank.records.host import HostSection


class Place(NamedTuple):
    """Where a line belongs, as far as its headings say."""

    host: str | None = None
    rank: int | None = None
    local_rank: int | None = None


class Sections:
    """The sections of all texts; a name that only looks like a host's counts where the evidence knows such a host, also
    by the end of its name alone, or where the text has several that differ in a number or a letter only. Ranks count
    where a text has several."""

    def __init__(self, told: Iterable[HostSection], named: Collection[str]) -> None:
        self._by_source: dict[str, list[tuple[int, Place]]] = {}
        known = by_short_name(named)
        sections = list(told)
        names = {(s.ref.source, s.host) for s in sections if s.host}
        alike = Counter((source, family(host)) for source, host in names)
        ranked = {(s.ref.source, s.rank, s.local_rank) for s in sections if (s.rank, s.local_rank) != (None, None)}
        ranks = Counter(source for source, *_ in ranked)
        for section in sections:
            source, host = section.ref.source, section.host
            name = known.get(short_name(host)) or by_ending(host, known) if host else None
            if name is None and host is not None and (section.sure or alike[source, family(host)] > 1):
                name = host
            several = ranks[source] > 1
            place = Place(name, section.rank if several else None, section.local_rank if several else None)
            self._by_source.setdefault(source, []).append((section.line, place))
        for rows in self._by_source.values():
            rows.sort(key=lambda row: row[0])

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset(place.host for rows in self._by_source.values() for _, place in rows if place.host)

    def at(self, source: str, line: int) -> Place:
        """Whose a line of a text is."""
        rows = self._by_source.get(source)
        if not rows or line <= 0:
            return Place()
        at = bisect_right(rows, line, key=lambda row: row[0]) - 1
        return rows[at][1] if at >= 0 else Place()
