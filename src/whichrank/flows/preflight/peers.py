"""The hosts of a run as peers: by which address one reaches another, and what was measured between them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from whichrank.evidence.probes.names import usual
from whichrank.fleet.host_helpers import HostHelpers
from whichrank.fleet.pairing import Pair
from whichrank.model.preflight import Blame
from whichrank.records.inspection import Attempt, Clock, Rate, RdmaRate, Volley

ASK_S = 30.0


class Measurements(Struct):
    """All that is known about the ways between hosts."""

    attempts: list[Attempt] = field(default_factory=list)
    volleys: list[Volley] = field(default_factory=list)
    rates: list[Rate] = field(default_factory=list)
    clocks: list[Clock] = field(default_factory=list)
    names: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    addresses: dict[str, list[str]] = field(default_factory=dict)
    loss: Blame | None = None
    paths: Blame | None = None
    slow: Blame | None = None
    rdma_rates: list[RdmaRate] = field(default_factory=list)
    rdma_slow: dict[str, Blame] = field(default_factory=dict)


class Peers(Struct):
    """How the hosts of a run reach each other."""

    host_helpers: HostHelpers
    token: str
    name: dict[str, str]
    ports: dict[str, dict[str, Any]]
    """Host -> the ports on which it listens (`rendezvous`, `high`, `udp`), and the programs that it has."""
    found: Measurements
    reach: dict[Pair, str] = field(default_factory=dict)
    """(From, to) -> the address by which the first reached the second."""
    mtu: dict[str, int] = field(default_factory=dict)
    count: int = 0
    """Of volleys: each has a name of its own."""

    @property
    def listening(self) -> list[str]:
        """Hosts that can be tested with others."""
        return [host for host in self.host_helpers.hosts if host in self.ports]

    def way(self, a: str, b: str) -> str | None:
        """The address of b for a: the one it really has, so that a wrong name is not also called a bad link."""
        address = self.reach.get((a, b)) or usual(self.found.names.get(a, {}).get(b, []))
        own = self.found.addresses.get(b, [])
        if own and address not in own:
            agreed = [x for answers in self.found.names.values() for x in answers.get(b, [])]
            address = next((x for x in agreed if x in own), own[0])
        return address or None
