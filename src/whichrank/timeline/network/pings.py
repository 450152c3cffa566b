"""Which hosts answer a ping, and on which ways packets are lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from whichrank.records.network import Ping
from whichrank.timeline.case import Case
from whichrank.timeline.identity.who import family, short_name

_PLAIN = 1472
"""Bytes that pass without jumbo frames: what larger packets do is a matter of the MTU."""
_FEWEST = 2
"""Packets: one may be lost anywhere."""


class Way(Struct, frozen=True):
    """All pings from one host to another."""

    source: str
    """Empty where nothing says it."""
    target: str
    pings: tuple[Ping, ...]

    @property
    def sent(self) -> int:
        return sum(ping.sent for ping in self.pings)

    @property
    def lost(self) -> int:
        return self.sent - sum(ping.received for ping in self.pings)

    @property
    def silent(self) -> bool:
        return self.lost == self.sent

    @property
    def ends(self) -> frozenset[str]:
        return frozenset(filter(None, (self.source, self.target)))


def ways(case: Case, *, jumbo: bool = False) -> list[Way]:
    """The ways between hosts, by small packets or by large ones."""
    found: dict[tuple[str, str], list[Ping]] = defaultdict(list)
    for ping in case.pings:
        if (ping.size > _PLAIN) if jumbo else (ping.size <= _PLAIN):
            target = _name(ping.target, ping.address, case.host_names)
            found[short_name(ping.host) if ping.host else "", target].append(ping)
    return [way for ends, pings in found.items() if (way := Way(*ends, tuple(pings))).sent >= _FEWEST]


def _name(target: str, address: str, names: Mapping[str, str]) -> str:
    name = names.get(target) or names.get(address) or target
    return name if name[:1].isdigit() else short_name(name)


def silent_hosts(case: Case, known: Sequence[Way]) -> list[str]:
    """Hosts of the job that answered nobody, where others answered."""
    answering = {way.target for way in known if not way.silent}
    hosts = {short_name(host) for host in case.people.hosts()} | {way.source for way in known if way.source}
    silent = {way.target for way in known if way.silent and _is_one_of(way.target, hosts)} - answering
    return sorted(silent) if answering else []


def _is_one_of(host: str, hosts: Collection[str]) -> bool:
    """Whether a host is one of the job's, or is called like those."""
    return not hosts or host in hosts or _kind(host) in {_kind(each) for each in hosts}


def _kind(host: str) -> str:
    """What `node7` and `node8`, `nodea` and `nodeb` have in common."""
    return family(host)[:-1]


def at_one_end(lossy: Sequence[Way], known: Sequence[Way]) -> str | None:
    """The one host at an end of every way that loses packets and of none that does not."""
    clean = frozenset[str]().union(*(way.ends for way in known if not way.lost))
    ends = frozenset.intersection(*(way.ends for way in lossy)) - clean
    return next(iter(ends)) if len(ends) == 1 else None
