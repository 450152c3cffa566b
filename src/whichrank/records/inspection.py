"""What probes measured: on each host, and between hosts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil, isfinite
from statistics import median
from typing import Any

from msgspec import Struct, field

from whichrank.model.preflight import Blame, Launch


class ProbeResult(Struct, frozen=True):
    """What one probe said on one host. `values` is plain JSON; it is empty where `why` says why there is nothing."""

    probe: str
    values: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""
    took_s: float = 0.0
    timed_out: bool = False
    absent: bool = False
    """The host does not have what the probe looks at."""


class HostProbes(Struct, frozen=True):
    """All that was measured on one host."""

    host: str
    results: Mapping[str, ProbeResult] = field(default_factory=dict)
    unreached: str = ""
    """Why the host could not be asked at all."""

    def values(self, probe: str) -> Mapping[str, Any] | None:
        """What a probe measured; None where it could not."""
        found = self.results.get(probe)
        return None if found is None or found.why else found.values

    def absent(self, probe: str) -> bool:
        found = self.results.get(probe)
        return found is not None and found.absent

    def missing(self, probe: str) -> str:
        """Why there is nothing of a probe."""
        found = self.results.get(probe)
        return self.unreached or (found.why if found is not None and found.why else f"the probe {probe} did not run")


def number(values: Mapping[str, Any], key: str) -> float | None:
    """A number, whatever the other side sent."""
    value = values.get(key)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return float(value) if isfinite(value) else None


def text(values: Mapping[str, Any], key: str) -> str:
    value = values.get(key)
    return value if isinstance(value, str) else ""


def items(values: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The objects of a list."""
    value = values.get(key)
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def mapping(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """An object; an empty one where there is none."""
    value = values.get(key)
    return value if isinstance(value, dict) else {}


class Attempt(Struct, frozen=True):
    """One connection that one host tried to another."""

    a: str
    b: str
    port: int
    kind: str
    """`rendezvous` or `high`."""
    outcome: str
    """`connected`, `refused`, `dropped`, `rejected`, `unreachable`, `unresolved`, `wrong host`, `local`."""
    detail: str = ""
    address: str = ""
    rtt_us: int | None = None


class Volley(Struct, frozen=True):
    """Datagrams of several sizes that one host sent and another counted."""

    a: str
    b: str
    sent: Mapping[int, int]
    """Size of the IP packet -> how many were sent."""
    arrived: Mapping[int, int]
    unsent: Mapping[int, str] = field(default_factory=dict)
    """Size -> why the sender's own kernel refused it."""


class Rate(Struct, frozen=True):
    """How fast data went from one host to another."""

    a: str
    b: str
    gbits: float | None
    round: int
    why: str = ""
    retransmits: int | None = None
    reference: float | None = None
    """What other pairs gave in the same minute, each alone, where a slow pair was measured again beside them."""


def usual_gbits(rates: Iterable[Rate]) -> float:
    """What pairs of healthy hosts give.

    Three slow hosts of eight make most pairs slow: where rates are of two kinds, far apart, the faster kind counts,
    unless it is rare.
    """
    told = sorted(rate.gbits for rate in rates if rate.gbits is not None)
    if not told:
        return 0.0
    often = range(1, len(told) - ceil(len(told) / 4) + 1)
    factor, start = max(((told[n] / max(told[n - 1], 1e-6), n) for n in often), default=(1.0, 0))
    return median(told[start:] if factor >= _TWO_KINDS else told)


_TWO_KINDS = 3.0
"""Own threshold: rates of healthy pairs lie closer together, even on busy hosts."""


class RdmaRate(Struct, frozen=True):
    """How fast RDMA writes went from one host to another, by one adapter."""

    a: str
    b: str
    device: str
    gbits: float | None
    round: int
    why: str = ""
    port_gbits: float | None = None
    """The rate of the sender's port."""

    @property
    def unreached(self) -> bool:
        """Whether the adapters could not reach each other, as the completion with an error says."""
        words = self.why.lower()
        return self.gbits is None and any(sign in words for sign in _NO_PATH)


_NO_PATH = ("completion with error", "syndrom", "failed to modify qp", "to rtr", "no answer within")
"""perftest's words where the TCP connection worked and RDMA did not; a stalled transfer ends by our time limit."""


class Clock(Struct, frozen=True):
    """How far the clock of a host is ahead of the one that asked."""

    host: str
    ahead_s: float
    error_s: float


class Pace(Struct, frozen=True):
    """How long a host took for the same piece of work on average, alone or beside the others."""

    host: str
    seconds: float
    cpu_seconds: float
    throttled: int | None = None
    """Times that the control group was out of its CPU quota meanwhile."""
    alone: bool = False


class Inspection(Struct, frozen=True):
    """All that preflight measured."""

    hosts: Sequence[HostProbes] = ()
    launch: Launch = field(default_factory=Launch)
    attempts: Sequence[Attempt] = ()
    volleys: Sequence[Volley] = ()
    rates: Sequence[Rate] = ()
    clocks: Sequence[Clock] = ()
    paces: Sequence[Pace] = ()
    names: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    """Host that asked -> name -> addresses; no addresses where it does not resolve."""
    addresses: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Host -> its own addresses, loopback left out."""
    loss: Blame | None = None
    paths: Blame | None = None
    slow: Blame | None = None
    """Where volleys lose packets, where large packets vanish, where rates are low; None where nobody looked."""
    rdma_rates: Sequence[RdmaRate] = ()
    rdma_slow: Mapping[str, Blame] = field(default_factory=dict)
    """Adapter -> who is to blame for low or no RDMA bandwidth; empty where nobody looked."""

    def reached(self) -> Iterator[HostProbes]:
        return (host for host in self.hosts if not host.unreached)
