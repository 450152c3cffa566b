"""The job's TCP connections lined up: both ends of each, and which host and ranks an address belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from whichrank.records.network import PortState, TcpSocket
from whichrank.timeline.hardware import order_of
from whichrank.timeline.identity.who import People

_OWN = ("127.", "::1", "0.0.0.0", "*", "::")  # noqa: S104 - addresses that are looked for, not bound
_SERVICES = 1024
"""Below are ports of services: where nothing tells whose a socket is, those are not the job's."""


class Place(Struct, frozen=True):
    """A host as the network knows it."""

    name: str
    addresses: frozenset[str]
    ranks: tuple[int, ...] = ()
    seen: bool = True
    """Whether its own sockets are at hand."""


class Flow(Struct, frozen=True):
    """One direction of a connection between two places: what the sender says, and the other end where it is known."""

    sender: TcpSocket
    receiver: TcpSocket | None
    source: Place
    target: Place
    before: TcpSocket | None = None
    """The sender at an earlier look."""

    @property
    def pair(self) -> frozenset[Place]:
        return frozenset((self.source, self.target))


class Connections(Struct):
    """Between places only: what stays on a host says nothing of the network."""

    places: list[Place] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    opening: list[Flow] = field(default_factory=list)
    """Connections that were asked for and not answered yet; the receiver is who listens there."""
    half_open: list[TcpSocket] = field(default_factory=list)
    known: bool = False
    """Whether sockets were looked at, whatever they are."""

    def between(self, one: Place, other: Place) -> list[Flow]:
        return [flow for flow in self.flows if flow.pair == {one, other}]

    def place_of(self, address: str) -> Place | None:
        return next((place for place in self.places if address in place.addresses), None)


def connect(
    sockets: Iterable[TcpSocket], ports: Iterable[PortState], people: People, names: Mapping[str, str] | None = None
) -> Connections:
    """Line up the sockets of the job; `names` are those of addresses at which no socket was looked at."""
    ours = _ours([_ranked(socket, people) for socket in sockets])
    if not ours:
        return Connections()
    now, before = _newest(ours)
    places = _Places(now, ports, people, names or {})
    ends = {(s.here, s.there): s for s in now}
    listening = places.listening(now)
    found = Connections(places.seen, known=True)
    for socket in now:
        if socket.state in ("LISTEN", "UNCONN") or socket.local.startswith(_OWN) or socket.peer.startswith(_OWN):
            continue
        source, target = places.of(socket.local), places.of(socket.peer)
        if source is target:
            continue
        if socket.state == "SYN-RECV":
            found.half_open.append(socket)
        elif socket.state == "SYN-SENT":
            found.opening.append(Flow(socket, listening.get(socket.there), source, target))
        else:
            other = ends.get((socket.there, socket.here))
            found.flows.append(Flow(socket, other, source, target, before.get((socket.here, socket.there))))
    return found


def _ranked(socket: TcpSocket, people: People) -> TcpSocket:
    """With the rank of its process, and the name of its host where it has one."""
    rank = socket.rank if socket.rank is not None else people.rank_of(socket.pid, socket.host)
    if rank == socket.rank:
        return socket
    return replace(socket, rank=rank, ref=replace(socket.ref, rank=rank))


def _ours(sockets: Sequence[TcpSocket]) -> list[TcpSocket]:
    """Those of ranks; where nothing tells whose they are, all but those of services."""
    if any(s.rank is not None for s in sockets):
        return [s for s in sockets if s.rank is not None or s.state == "SYN-RECV"]
    return [s for s in sockets if min(s.local_port, s.peer_port or _SERVICES) >= _SERVICES]


Key = tuple[tuple[str, int], tuple[str, int]]


def _newest(sockets: Sequence[TcpSocket]) -> tuple[list[TcpSocket], dict[Key, TcpSocket]]:
    """The last look at each socket, and the first one where there are several."""
    looks: dict[Key, list[TcpSocket]] = {}
    for socket in sorted(sockets, key=lambda s: order_of(s.ref.source)):
        looks.setdefault((socket.here, socket.there), []).append(socket)
    return [each[-1] for each in looks.values()], {key: each[0] for key, each in looks.items() if len(each) > 1}


class _Places:
    """Addresses that were seen on one rank, one host or in one namespace are one place."""

    def __init__(
        self, sockets: Sequence[TcpSocket], ports: Iterable[PortState], people: People, names_of: Mapping[str, str]
    ) -> None:
        self._by_address: dict[str, Place] = {}
        self._names = names_of
        groups = _groups(sockets, ports)
        ranks = {min(group): tuple(sorted({s.rank for s in sockets if s.rank is not None and s.local in group}))
                 for group in groups}  # fmt: skip
        names = [_name(group, ranks[min(group)], sockets, people) for group in groups]
        self.seen: list[Place] = []
        for group, name in zip(groups, names, strict=True):
            unique = name if name and names.count(name) == 1 else min(group)
            place = Place(unique, group, ranks[min(group)])
            self.seen.append(place)
            self._by_address.update(dict.fromkeys(group, place))

    def of(self, address: str) -> Place:
        """The place of an address; one that nobody was seen at is a place of its own."""
        if address not in self._by_address:
            self._by_address[address] = Place(self._names.get(address, address), frozenset((address,)), seen=False)
        return self._by_address[address]

    def listening(self, sockets: Sequence[TcpSocket]) -> dict[tuple[str, int], TcpSocket]:
        """Who waits for connections where; on all addresses of its place, where it says no other."""
        found: dict[tuple[str, int], TcpSocket] = {}
        for socket in sockets:
            if socket.state != "LISTEN":
                continue
            here = [place for place in self.seen if socket.rank in place.ranks or place.name == socket.host]
            anywhere = {a for place in here for a in place.addresses} if socket.local.startswith(_OWN) else ()
            found.update({(address, socket.local_port): socket for address in (socket.local, *anywhere)})
        return found


def _groups(sockets: Sequence[TcpSocket], ports: Iterable[PortState]) -> list[frozenset[str]]:
    """Addresses put together by whose they are."""
    local: dict[object, set[str]] = {}
    for socket in sockets:
        if not socket.local.startswith(_OWN):
            owner = socket.rank if socket.rank is not None else socket.host or socket.ref.source
            local.setdefault(owner, set()).add(socket.local)
    mine = {address for group in local.values() for address in group}
    for port in ports:
        if mine.intersection(port.addresses):
            local.setdefault((port.ref.source, port.host), set()).update(port.addresses)
    merged: list[set[str]] = []
    for group in local.values():
        touching = [other for other in merged if other & group]
        merged = [other for other in merged if not other & group]
        merged.append(group.union(*touching))
    return sorted((frozenset(group) for group in merged), key=min)


def _name(group: frozenset[str], ranks: Sequence[int], sockets: Sequence[TcpSocket], people: People) -> str:
    """The host of its ranks, or of the files that tell of it; empty where they disagree."""
    named = {people.host_of(rank) for rank in ranks} if ranks else {s.host for s in sockets if s.local in group}
    found = [name for name in named if name]
    return found[0] if len(named) == 1 and found else ""
