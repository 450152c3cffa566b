"""A host or a pair answers far later than the others.

What it finds: connections whose round trip is much longer than that of the other pairs, located to a host or a pair.

Why it happens: traffic takes another way (a detour over a far switch, a tunnel, a proxy), a host in another building, a
queue that is always full.

How it decides: the kernel measures the round trip while it connects; of all connections between two hosts the shortest
counts. It must be five times what the fastest quarter of the pairs needs, and two milliseconds above it. Where all
pairs of a host are long, the host is named.

Example: `node6: a round trip of 20.1 ms towards every other host; 0.1 ms is usual`

Fix: compare the route (`ip route get`, `tracepath`) with that of a good pair; look for queues (`tc -s qdisc`).

Limits: a handshake is one sample at one moment. A job that moves few, large messages may not notice.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NotEvaluated, Subject
from whichrank.records.inspection import Inspection
from whichrank.rules.preflight_findings import found, hosts, link, measured

CODE = "PREF111"
CAUSE = "slow-network"
FIX = (
    "Compare the route with that of a good pair: ip route get ADDRESS, tracepath ADDRESS.",
    "Look for queues that stay full on the way: tc -s qdisc, the switch port's counters.",
)
FACTOR, LEAST_US, MOST_PAIRS = 5.0, 2000, 3
"""Own thresholds: pairs of one cluster differ by a few switches, tens of microseconds; a busy host adds less than a
millisecond to the shortest of several handshakes."""


def judge(inspection: Inspection) -> list[Finding] | NotEvaluated:
    trips = _shortest(inspection)
    if len(trips) < 3:
        return NotEvaluated("round trips between at least three hosts")
    usual = sorted(trips.values())[len(trips) // 4]  # one host of four is in half of the pairs
    long = {pair: trip for pair, trip in trips.items() if trip > FACTOR * usual and trip > usual + LEAST_US}
    named, findings = _hosts(trips, long), []
    for host in named:
        own = {pair: trip for pair, trip in long.items() if host in pair}
        findings.append(_finding(hosts(host), f"{host}: a ", "towards every other host", own, usual))
    rest = {pair: trip for pair, trip in long.items() if not named & set(pair)}
    if len(rest) > MOST_PAIRS:
        members = Subject(hosts=tuple(sorted({host for pair in rest for host in pair})))
        return [*findings, _finding(members, "A ", f"between {len(rest)} pairs of hosts", rest, usual)]
    for pair, trip in rest.items():
        findings.append(_finding(link(*pair), "A ", f"between {pair[0]} and {pair[1]} only", {pair: trip}, usual))
    return findings


def _shortest(inspection: Inspection) -> dict[tuple[str, str], int]:
    """Of each pair, whoever connected."""
    trips: dict[tuple[str, str], int] = {}
    for tried in inspection.attempts:
        if tried.rtt_us is not None:
            pair = (min(tried.a, tried.b), max(tried.a, tried.b))
            trips[pair] = min(tried.rtt_us, trips.get(pair, tried.rtt_us))
    return trips


def _hosts(trips: dict[tuple[str, str], int], long: dict[tuple[str, str], int]) -> set[str]:
    """The hosts of which every pair is long; of two hosts that have a single pair, neither."""
    names = {host for pair in long for host in pair}
    counts = {host: [pair in long for pair in trips if host in pair] for host in names}
    return {host for host, pairs in counts.items() if len(pairs) > 1 and all(pairs)}


def _finding(subject: Subject, who: str, where: str, trips: dict[tuple[str, str], int], usual: float) -> Finding:
    longest = max(trips.values())
    refs = [
        measured("connect", f"{a} – {b}: round trip {trip / 1000:.2f} ms (usual {usual / 1000:.2f})", a)
        for (a, b), trip in list(trips.items())[:4]
    ]
    message = f"{who}round trip of {longest / 1000:.1f} ms {where}; {usual / 1000:.1f} ms is usual."
    return found(CODE, CAUSE, "slow", subject, message, refs, FIX)
