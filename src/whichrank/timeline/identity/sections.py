"""Of which host the lines of a text are, by the headings and typed commands in it."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from whichrank.timeline.identity.who import by_short_name, family, short_name

if TYPE_CHECKING:
    from whichrank.records.host import HostSection


class Sections:
    """The sections of all texts; a name that only looks like a host's counts where the evidence knows such a host, or
    where the text has several that differ in a number or a letter only."""

    def __init__(self, told: Iterable[HostSection], named: Collection[str]) -> None:
        self._by_source: dict[str, list[tuple[int, str | None]]] = {}
        known = by_short_name(named)
        sections = list(told)
        names = {(s.ref.source, s.host) for s in sections if s.host}
        alike = Counter((source, family(host)) for source, host in names)
        for section in sections:
            host = section.host
            sure = host is not None and (
                section.sure or short_name(host) in known or alike[section.ref.source, family(host)] > 1
            )
            if host is None or sure:
                place = known.get(short_name(host), host) if host else None
                self._by_source.setdefault(section.ref.source, []).append((section.line, place))
        for rows in self._by_source.values():
            rows.sort(key=lambda row: row[0])

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset(host for rows in self._by_source.values() for _, host in rows if host)

    def host_at(self, source: str, line: int) -> str | None:
        """The host of a line of a text."""
        rows = self._by_source.get(source)
        if not rows or line <= 0:
            return None
        at = bisect_right(rows, line, key=lambda row: row[0]) - 1
        return rows[at][1] if at >= 0 else None
