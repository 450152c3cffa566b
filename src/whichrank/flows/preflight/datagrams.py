"""Volleys of datagrams between hosts: which paths lose packets, and where large ones vanish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whichrank.fleet.host_helpers import Reply
from whichrank.fleet.pairing import Pair, in_rounds, settle
from whichrank.flows.preflight.peers import ASK_S, Peers
from whichrank.records.inspection import Volley

FEW = 16
"""Up to so many hosts every pair is tested with datagrams: that takes a second."""
SMALL = 128
_SMALL_COUNT, _LARGE_COUNT = 300, 8
_LOST = 0.01
_STEPS = (1280, 1400, 1450, 1500, 2044, 4092, 8192, 8900)
"""Usual MTUs: the least of IPv6, tunnels, VXLAN, Ethernet, InfiniBand (2K and 4K), jumbo frames in tunnels."""


def volleys(peers: Peers, *, thorough: bool) -> None:
    """In rounds of pairs, both ways at once. The search stops when every failure is located."""
    hosts, found = peers.listening, peers.found
    lost: dict[Pair, list[bool]] = {}
    holes: dict[Pair, list[bool]] = {}

    def test(pairs: Sequence[Pair]) -> dict[Pair, bool]:
        good = {}
        for (a, b), sent in _round(peers, pairs).items():
            found.volleys += sent
            fine_loss, fine_path = not any(map(loses, sent)), not any(map(has_hole, sent))
            lost.setdefault((a, b), []).append(fine_loss)
            holes.setdefault((a, b), []).append(fine_path)
            good[a, b] = fine_loss and fine_path
        return good

    rounds = in_rounds(hosts, test, thorough=thorough or len(hosts) <= FEW)
    found.loss, found.paths = settle(hosts, lost, rounds), settle(hosts, holes, rounds)


def _round(peers: Peers, pairs: Sequence[Pair]) -> dict[Pair, list[Volley]]:
    requests: dict[str, dict[str, Any]] = {}
    names: dict[Pair, str] = {}
    for one, other in pairs:
        for a, b in ((one, other), (other, one)):
            address = peers.way(a, b)
            if address is None:
                continue
            peers.count += 1
            names[a, b] = f"v{peers.count}"
            sizes = {SMALL: _SMALL_COUNT, **dict.fromkeys(_large(peers, a, b), _LARGE_COUNT)}
            requests[a] = {
                "do": "volley", "address": address, "port": peers.ports[b]["udp"], "sizes": sizes,
                "volley": f"{peers.token[:8]}:{names[a, b]}",
            }  # fmt: skip
    sent = peers.host_helpers.ask(requests, ASK_S)
    counts = peers.host_helpers.ask({b: {"do": "counts", "volley": names[a, b]} for a, b in names}, ASK_S)
    told = {way: _volley(way, sent[way[0]], counts[way[1]]) for way in names}
    return {(a, b): [v for way in ((a, b), (b, a)) if (v := told.get(way)) is not None] for a, b in pairs}


def _large(peers: Peers, a: str, b: str) -> list[int]:
    """What both ends' interfaces allow, and sizes below, so that a hole tells between which two the path ends."""
    most = min(peers.mtu.get(a, 1500), peers.mtu.get(b, 1500), 65_535)
    return sorted({most, *(size for size in _STEPS if size < most)})


def _volley(way: Pair, sent: Reply, counts: Reply) -> Volley | None:
    if not isinstance(sent.result, dict) or not isinstance(counts.result, dict):
        return None
    told = {int(size): int(count) for size, count in sent.result.get("sent", {}).items()}
    arrived = {int(size): int(count) for size, count in counts.result.items()}
    # Where the network said how much fits, TCP will keep to it.
    known = sent.result.get("path_mtu")
    if isinstance(known, int):
        told = {size: count for size, count in told.items() if size <= known}
    unsent = {int(size): str(why) for size, why in sent.result.get("unsent", {}).items()}
    return Volley(*way, told, arrived, unsent)


def loses(volley: Volley) -> bool:
    sent, arrived = volley.sent.get(SMALL, 0), volley.arrived.get(SMALL, 0)
    return bool(sent and arrived) and 1 - arrived / sent > _LOST


def has_hole(volley: Volley) -> bool:
    """Small packets arrive, and of some larger size none does."""
    if not volley.arrived.get(SMALL):
        return False
    return any(count >= _LARGE_COUNT // 2 and not volley.arrived.get(size) for size, count in volley.sent.items())
