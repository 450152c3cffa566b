"""Each pair of hosts that was tested, in words for the report."""

from __future__ import annotations

from whichrank.fleet.pairing import Pair
from whichrank.flows.preflight.datagrams import SMALL, has_hole, loses
from whichrank.flows.preflight.throughput import judged
from whichrank.model.preflight import LinkCheck
from whichrank.records.inspection import Inspection


def states(inspection: Inspection) -> list[LinkCheck]:
    """Each pair that was tested, in words; healthy ones too."""
    pairs: dict[Pair, list[tuple[str, str]]] = {}

    def say(a: str, b: str, state: str, why: str) -> None:
        pairs.setdefault((min(a, b), max(a, b)), []).append((state, why))

    for tried in inspection.attempts:
        fine = tried.outcome in ("connected", "other service")
        why = "" if fine else f"{tried.a} → {tried.b} port {tried.port}: {tried.outcome}"
        say(tried.a, tried.b, "healthy" if fine else "unhealthy", why)
    for v in inspection.volleys:
        if loses(v):
            share = 1 - v.arrived.get(SMALL, 0) / v.sent[SMALL]
            say(v.a, v.b, "unhealthy", f"{v.a} → {v.b}: {share:.1%} of packets lost")
        elif has_hole(v):
            gone = min(s for s in v.sent if not v.arrived.get(s))
            say(v.a, v.b, "unhealthy", f"{v.a} → {v.b}: packets of {gone} bytes vanish")
        elif not v.arrived and v.sent:
            say(v.a, v.b, "unhealthy", f"{v.a} → {v.b}: no datagram arrives")
        else:
            say(v.a, v.b, "healthy", "")
    slow = judged(inspection.rates)
    for (a, b), tests in slow.items():
        own = [r.gbits for r in inspection.rates if {r.a, r.b} == {a, b} and r.gbits is not None]
        rate = f"{min(own):.3f} Gb/s" if own else "no throughput"
        say(a, b, "healthy" if any(tests) else "unhealthy", "" if any(tests) else f"slow: {rate}")
    for r in inspection.rdma_rates:
        if r.unreached:
            say(r.a, r.b, "unhealthy", f"{r.a} → {r.b} by {r.device}: RDMA does not get through")
    found = []
    for (one, other), told in pairs.items():
        bad = list(dict.fromkeys(words for state, words in told if state == "unhealthy"))
        found.append(LinkCheck(one, other, "unhealthy" if bad else "healthy", "; ".join(bad[:3])))
    return found
