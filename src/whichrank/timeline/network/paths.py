"""What rules on the network share: which connections stand still, what does not get through, and between whom.

TCP itself keeps the proof. Data that is sent again and again without an answer does not arrive; data that arrived and
whose acknowledgement did not is told by the other end. A receiver that does not read is no fault of the network: then
nothing is on the way, and the sender only asks for room.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from whichrank.model.findings import NotEvaluated
from whichrank.model.grades import Grade
from whichrank.records.network import PortState
from whichrank.timeline.case import Case
from whichrank.timeline.network.connections import Flow, Place

NO_SOCKETS = NotEvaluated("the TCP sockets of the ranks (ss -tinp, or a bundle of whichrank run)")

TRIES = 3
"""In vain, with doubling pauses from 0.2 s: 1.4 s and more. Loss at random does not hit one segment so often."""
_DOWN = ("DOWN", "LOWERLAYERDOWN", "NOTPRESENT")
SMALL = 500
"""Bytes that fit through any path."""
FRESH_MS = 5_000.0
ENOUGH = 500
"""Segments: below, a handful of lost ones would be a per cent."""
LONG_MS, FAR = 10.0, 20.0
"""Hosts of one cluster answer within a millisecond; queues of a busy but healthy network add some."""
QUEUED_MS, SLOWER, BUSY_MS = 1.0, 10.0, 1000.0
"""Shorter trips are enough where besides only a tenth of what others carry gets through, and that for a second."""

Reading = Literal["nothing", "link down", "only small passes", "silent", "blocked"]


class Scope(Struct, frozen=True):
    """Whom the trouble is about: one host, a pair of hosts, or neither."""

    place: Place | None = None
    pair: tuple[Place, Place] | None = None

    @property
    def places(self) -> tuple[Place, ...]:
        return (self.place,) if self.place else self.pair or ()


def stuck(case: Case) -> list[Flow]:
    """Flows whose data is on the way and is retransmitted without an answer."""
    return [flow for flow in case.connections.flows if _stuck(flow)]


def _stuck(flow: Flow) -> bool:
    sender = flow.sender
    waiting = sender.number("unacked") > 0 if "rto" in sender.values else sender.send_queue > 0
    return sender.state in ("ESTAB", "CLOSE-WAIT") and waiting and sender.timer != "persist" and sender.tries >= TRIES


def moving(flow: Flow) -> bool:
    """Whether its data was acknowledged just now."""
    # What is zero is left out: by the other values it is known that TCP was asked at all.
    return flow.sender.state == "ESTAB" and "rto" in flow.sender.values and flow.sender.number("lastack") < FRESH_MS


def scope_of(flows: Iterable[Flow]) -> Scope:
    """The one host that is in all of them, if they lead to several others; else the pair, if it is one."""
    pairs = {flow.pair for flow in flows}
    common = frozenset.intersection(*pairs) if pairs else frozenset()
    if len(pairs) > 1 and len(common) == 1:
        return Scope(place=next(iter(common)))
    if len(pairs) == 1:
        one, other = sorted(common, key=lambda place: place.name)
        return Scope(pair=(one, other))
    return Scope()


def blocked(flows: Iterable[Flow]) -> set[tuple[Place, Place]]:
    """The ways that don't carry: from whom to whom. By the bytes that the other end has received."""
    found = set()
    for flow in flows:
        if flow.receiver is None or "rto" not in flow.receiver.values:
            continue
        # The first byte of a connection that one side opened counts among those acknowledged.
        arrived = flow.receiver.number("bytes_received") > flow.sender.number("bytes_acked") + 1
        found.add((flow.target, flow.source) if arrived else (flow.source, flow.target))
    return found


def only_large(case: Case, flows: Sequence[Flow]) -> Grade | None:
    """Whether small segments pass where these large ones don't; None where nothing says so."""
    if any(flow.sender.send_queue < SMALL for flow in flows):
        return None
    if any(flow.sender.number("sacked") and flow.sender.number("lost") for flow in flows):
        return Grade.PROVES
    never = [flow for flow in flows if 0 < flow.sender.number("bytes_acked") < flow.sender.number("mss")]
    if len(never) < len(flows):
        return None
    passes = any(_passes(case, flow) for flow in flows)
    return Grade.SUPPORTS if passes or all(flow.sender.number("pmtu") > 1500 for flow in flows) else None


def _passes(case: Case, stuck_flow: Flow) -> bool:
    """Whether another connection between the two has been acknowledged since this one stands still."""
    since = stuck_flow.sender.number("lastack")
    return any(
        other.sender.number("bytes_acked") > 0 and other.sender.number("lastack") + 1000 < since
        for other in case.connections.between(stuck_flow.source, stuck_flow.target)
        if other.sender.number("unacked") == 0 and "rto" in other.sender.values
    )


def bulk(case: Case) -> list[Flow]:
    """Flows that carry data and go on: by few or small segments nothing can be measured."""
    return [flow for flow in case.connections.flows if moving(flow) and _carries(flow)]


def _carries(flow: Flow) -> bool:
    sender = flow.sender
    segments = sender.number("data_segs_out")
    full = sender.number("bytes_sent") >= segments * sender.number("mss") / 2
    # A receiver that has no room slows the sender down, not the network.
    held = sender.number("rwnd_limited") > sender.number("busy") / 2
    return segments >= ENOUGH and full and not held


def loss(flow: Flow) -> float:
    """The share of its segments that were lost: sent again, without those that had arrived after all."""
    now, before = flow.sender, flow.before
    again = now.number("total_retrans") - now.number("dsack_dups")
    sent = now.number("data_segs_out")
    if before is not None and sent - before.number("data_segs_out") >= ENOUGH:
        again -= before.number("total_retrans") - before.number("dsack_dups")
        sent -= before.number("data_segs_out")
    return max(0.0, again) / sent if sent else 0.0


class Pace(Struct, frozen=True):
    """What is usual between the hosts of a job."""

    trip_ms: float
    """The round trip: a quarter of the flows is faster."""
    rate: float
    """Bits per second while data is on the way: a quarter of the flows is faster."""


def pace_of(flows: Sequence[Flow]) -> Pace:
    trips = sorted(flow.sender.number("rtt") for flow in flows)
    rates = sorted(rate(flow) for flow in flows)
    return Pace(trips[len(trips) // 4], rates[len(rates) * 3 // 4]) if flows else Pace(0.0, 0.0)


def rate(flow: Flow) -> float:
    """Bits per second that got through while there was data on the way."""
    busy_ms = flow.sender.number("busy")
    return flow.sender.number("bytes_acked") * 8000 / busy_ms if busy_ms else 0.0


def crawls(flow: Flow, usual: Pace) -> bool:
    """Whether its data takes far longer than it did at best, or than that of the others."""
    trip, best = flow.sender.number("rtt"), flow.sender.number("minrtt")
    stretched = trip / max(min(best or usual.trip_ms, usual.trip_ms), 0.001)
    if flow.sender.number("rttvar") >= trip:
        return False  # single answers that were late
    if trip >= LONG_MS and stretched >= FAR:
        return True
    return starves(flow, usual) and trip >= QUEUED_MS and stretched >= FAR


def starves(flow: Flow, usual: Pace) -> bool:
    """Whether next to nothing of what others carry gets through, for seconds."""
    return 0 < rate(flow) < usual.rate / SLOWER and flow.sender.number("busy") >= BUSY_MS


def crawling(flows: Sequence[Flow]) -> list[Flow]:
    """Those that crawl; of one link alone, with those at one of its ends that starve: rates remember, trips do not."""
    usual = pace_of(flows)
    sure = [flow for flow in flows if crawls(flow, usual)]
    links = {flow.pair for flow in sure}
    if len(links) != 1:
        return sure
    (link,) = links
    more = [flow for flow in flows if flow.pair not in links and link & flow.pair and starves(flow, usual)]
    ends = {place for flow in more for place in link & flow.pair}
    return sure + more if len(ends) == 1 else sure


def reading(case: Case, flows: Sequence[Flow]) -> Reading:
    """What explains best that these stand still; one rule tells each."""
    if not flows:
        return "nothing"
    if link_down(case, scope_of(flows)) is not None:
        return "link down"
    if only_large(case, flows):
        return "only small passes"
    return "silent" if silent(scope_of(flows)) is not None else "blocked"


def silent(scope: Scope) -> Place | None:
    """The host that nothing at all was heard of, and that all of it is about."""
    unseen = [place for place in scope.places if not place.seen]
    return unseen[0] if len(unseen) == 1 else None


def link_down(case: Case, scope: Scope) -> tuple[Place, PortState] | None:
    """The host whose interface has no link at the last look."""
    for place in scope.places or case.connections.places:
        looks = interface_of(case, place)
        if looks and (looks[-1].state in _DOWN or looks[-1].physical == "NOCARRIER"):
            return place, looks[-1]
    return None


def interface_of(case: Case, place: Place) -> list[PortState]:
    """The interface that carries the addresses of a place, at every look."""
    carrying = {(p.ref.source, p.host, p.device) for p in case.hardware.ports if place.addresses & {*p.addresses}}
    return [p for p in case.hardware.ports if (p.ref.source, p.host, p.device) in carrying]


def links_seen(case: Case, scope: Scope) -> bool:
    """Whether the interfaces of those concerned were looked at."""
    return bool(scope.places) and all(interface_of(case, place) for place in scope.places)


def standing_s(flows: Iterable[Flow]) -> float:
    """For how long the longest of them has not been answered."""
    return max(flow.sender.number("lastack") for flow in flows) / 1000
