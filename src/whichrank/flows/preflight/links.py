"""What is measured between hosts: names, connections, datagrams, throughput, clocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from whichrank.fleet.engines import Engine
from whichrank.fleet.host_helpers import HostHelpers, Reply
from whichrank.fleet.pairing import Pair, Search, all_pairs, settle
from whichrank.model.preflight import Blame, Launch, LinkCheck
from whichrank.records.inspection import Attempt, Clock, Inspection, Rate, RdmaRate, Volley

if TYPE_CHECKING:
    from whichrank.flows.preflight.check import Wishes

FEW = 16
"""Up to so many hosts every pair is tested with datagrams: that takes a second."""
_SMALL, _SMALL_COUNT, _LARGE_COUNT = 128, 300, 8
_LOST = 0.01
_SECONDS = 0.5
_SLOW, _CLEARLY = 0.5, 0.2
"""Below this share of the median a pair is slow; below the second one no busy moment explains it."""
_ALONE, _TURNS = 4, 3
"""How many slow pairs are measured again alone, and how often at most."""
_ASK_S = 30.0
_DEFINITE = ("connected", "refused", "rejected", "unresolved", "other service")
"""Outcomes that a second try would not change."""


@dataclass(slots=True)
class Measurements:
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


@dataclass(slots=True)
class _Peers:
    """How the hosts of a run reach each other."""

    host_helpers: HostHelpers
    token: str
    name: dict[str, str]
    ports: dict[str, dict[str, Any]]
    reach: dict[Pair, str]
    """(From, to) -> the address by which the first reached the second."""
    mtu: dict[str, int]
    count: int = 0


def measure(everyone: HostHelpers, engine: Engine, launch: Launch, token: str, wishes: Wishes) -> Measurements:
    """In the order in which one needs the other."""
    found = Measurements(clocks=_clocks(everyone))
    served = everyone.ask_all({"do": "serve", "token": token, "port": launch.port}, _ASK_S)
    peers = _Peers(
        everyone, token, {host: engine.address(host) for host in engine.hosts},
        {host: r.result for host, r in served.items() if isinstance(r.result, dict)}, {}, {},
    )  # fmt: skip
    _learn_addresses(peers, found, launch)
    _connect(peers, found, wishes.connect_s)
    _volleys(peers, found, thorough=wishes.thorough)
    if wishes.full:
        _rates(peers, found, thorough=wishes.thorough, iperf=wishes.iperf)
        _rdma(peers, found, thorough=wishes.thorough)
    return found


def _rdma(peers: _Peers, found: Measurements, *, thorough: bool) -> None:
    """By perftest, where hosts have active RDMA ports and the program."""
    able = [host for host, about in peers.ports.items() if about.get("perftest")]
    if len(able) < 2:
        return
    from whichrank.flows.preflight import rdma

    asked = {host: {"do": "probe", "probes": ["rdma"]} for host in able}
    ports: dict[str, dict[str, Any]] = {}
    for host, reply in peers.host_helpers.ask(asked, _ASK_S).items():
        value = (reply.result or {}).get("rdma", {}).get("value") if isinstance(reply.result, dict) else None
        own = {str(p.get("device")): p for p in (value or {}).get("ports", []) if p.get("state") == "ACTIVE"}
        if own:
            ports[host] = own
    ways = {(a, b): way for a in ports for b in ports if a != b and (way := _way(peers, found, a, b))}
    found.rdma_rates, found.rdma_slow = rdma.measure(peers.host_helpers, ports, ways, thorough=thorough)


def _clocks(everyone: HostHelpers) -> list[Clock]:
    """Of several answers the one with the shortest way counts: half of it is the error."""
    best: dict[str, Clock] = {}
    for _ in range(3):
        for host, reply in everyone.ask_all({"do": "clock"}, _ASK_S).items():
            if isinstance(reply.result, dict):
                middle, error = (reply.sent_s + reply.received_s) / 2, (reply.received_s - reply.sent_s) / 2
                clock = Clock(host, float(reply.result["now_s"]) - middle, error)
                if host not in best or error < best[host].error_s:
                    best[host] = clock
    return list(best.values())


def _learn_addresses(peers: _Peers, found: Measurements, launch: Launch) -> None:
    names = sorted(set(peers.name.values()))
    asked = peers.host_helpers.ask_all({"do": "resolve", "names": names}, _ASK_S)
    by_name = {name: host for host, name in peers.name.items()}
    for host, reply in asked.items():
        if isinstance(reply.result, dict):
            found.names[host] = {
                by_name[str(n)]: [str(a) for a in own] for n, own in reply.result.items() if n in by_name
            }
    probed = peers.host_helpers.ask_all(
        {"do": "probe", "probes": ["interfaces"], "launch": {"port": launch.port}}, _ASK_S
    )
    for host, reply in probed.items():
        value = (reply.result or {}).get("interfaces", {}).get("value") if isinstance(reply.result, dict) else None
        own = [
            (str(a).partition("/")[0], i) for i in (value or {}).get("interfaces", []) for a in i.get("addresses", [])
        ]
        found.addresses[host] = [a for a, i in own if i.get("name") != "lo" and not a.lower().startswith("fe80")]
        used = [i for a, i in own if any(a in answers.get(host, []) for answers in found.names.values())]
        used = used or [i for a, i in own if i.get("name") != "lo"]
        if used and isinstance(used[0].get("mtu"), int):
            peers.mtu[host] = used[0]["mtu"]


def _connect(peers: _Peers, found: Measurements, limit_s: float) -> None:
    """Every host to every other, on the rendezvous port and on one of the kernel's choice, all at once."""
    targets = {
        host: [
            (other, int(port), kind)
            for other, ports in peers.ports.items() if other != host
            for kind in ("rendezvous", "high") if (port := ports.get(kind))
        ]
        for host in peers.host_helpers.hosts
    }  # fmt: skip
    first = _attempts(peers, targets, limit_s)
    # A connection that got no answer is tried once more: a lost packet is not a closed port.
    silent = {(a.a, a.b, a.port) for a in first if a.outcome not in _DEFINITE}
    again = {host: [t for t in own if (host, *t[:2]) in silent] for host, own in targets.items()}
    later = {(a.a, a.b, a.port): a for a in _attempts(peers, {h: own for h, own in again.items() if own}, limit_s)}
    found.attempts += [later.get((a.a, a.b, a.port), a) for a in first]
    for attempt in found.attempts:
        if attempt.address:
            peers.reach[attempt.a, attempt.b] = attempt.address


def _attempts(peers: _Peers, targets: Mapping[str, Sequence[tuple[str, int, str]]], limit_s: float) -> list[Attempt]:
    requests = {
        host: {
            "do": "connect", "token": peers.token, "limit_s": limit_s,
            "targets": [{"name": peers.name[other], "port": port} for other, port, _ in own],
        }
        for host, own in targets.items()
    }  # fmt: skip
    batches = 1 + max(map(len, targets.values()), default=0) // 256
    told = []
    for host, reply in peers.host_helpers.ask(requests, _ASK_S + limit_s * batches).items():
        for (other, port, kind), result in zip(targets[host], reply.result or [], strict=False):
            rtt = result.get("rtt_us")
            told.append(
                Attempt(host, other, port, kind, str(result.get("outcome")), str(result.get("detail", "")),
                        str(result.get("address", "")), rtt if isinstance(rtt, int) else None)
            )  # fmt: skip
    return told


def _way(peers: _Peers, found: Measurements, a: str, b: str) -> str | None:
    """The address of b for a: the one it really has, so that a wrong name is not also called a bad link."""
    address = peers.reach.get((a, b), "")
    own = found.addresses.get(b, [])
    if own and address not in own:
        address = next((x for x in _agreed(found, b) if x in own), own[0])
    return address or None


def _agreed(found: Measurements, host: str) -> list[str]:
    return [a for answers in found.names.values() for a in answers.get(host, [])]


# -- datagrams


def _volleys(peers: _Peers, found: Measurements, *, thorough: bool) -> None:
    """In rounds of pairs, both ways at once. The search stops when every failure is located."""
    hosts = [host for host in peers.host_helpers.hosts if host in peers.ports]
    lost: dict[Pair, list[bool]] = {}
    holes: dict[Pair, list[bool]] = {}

    def test(pairs: Sequence[Pair]) -> dict[Pair, bool]:
        good = {}
        for (a, b), volleys in _round_of_volleys(peers, found, pairs).items():
            found.volleys += volleys
            fine_loss, fine_path = not any(map(_loses, volleys)), not any(map(_has_hole, volleys))
            lost.setdefault((a, b), []).append(fine_loss)
            holes.setdefault((a, b), []).append(fine_path)
            good[a, b] = fine_loss and fine_path
        return good

    rounds = _in_rounds(hosts, test, thorough=thorough or len(hosts) <= FEW)
    found.loss, found.paths = settle(hosts, lost, rounds), settle(hosts, holes, rounds)


def _in_rounds(hosts: Sequence[str], test: Callable[[Sequence[Pair]], dict[Pair, bool]], *, thorough: bool) -> int:
    """How many rounds it took."""
    if thorough:
        rounds = 0
        bad: list[Pair] = []
        for pairs in all_pairs(hosts):
            bad += [pair for pair, good in test(pairs).items() if not good]
            rounds += 1
        # What failed is tested once more: a passing disturbance is not blamed.
        while bad:
            now: list[Pair] = []
            for pair in bad:
                if not {host for other in now for host in other} & set(pair):
                    now.append(pair)
            test(now)
            bad = [p for p in bad if p not in now]
            rounds += 1
        return rounds
    search = Search(hosts)
    while pairs := search.next_round():
        search.note(test(pairs))
    return search.rounds


def _round_of_volleys(peers: _Peers, found: Measurements, pairs: Sequence[Pair]) -> dict[Pair, list[Volley]]:
    requests: dict[str, dict[str, Any]] = {}
    names: dict[Pair, str] = {}
    for one, other in pairs:
        for a, b in ((one, other), (other, one)):
            address = _way(peers, found, a, b)
            if address is None:
                continue
            peers.count += 1
            names[a, b] = f"v{peers.count}"
            sizes = {_SMALL: _SMALL_COUNT, **dict.fromkeys(_large(peers, a, b), _LARGE_COUNT)}
            requests[a] = {
                "do": "volley", "address": address, "port": peers.ports[b]["udp"], "sizes": sizes,
                "volley": f"{peers.token[:8]}:{names[a, b]}",
            }  # fmt: skip
    sent = peers.host_helpers.ask(requests, _ASK_S)
    counts = peers.host_helpers.ask({b: {"do": "counts", "volley": names[a, b]} for a, b in names}, _ASK_S)
    told = {way: _volley(way, sent[way[0]], counts[way[1]]) for way in names}
    return {(a, b): [v for way in ((a, b), (b, a)) if (v := told.get(way)) is not None] for a, b in pairs}


def _large(peers: _Peers, a: str, b: str) -> list[int]:
    """What both ends' interfaces allow, and the sizes that almost every path carries."""
    most = min(peers.mtu.get(a, 1500), peers.mtu.get(b, 1500))
    return sorted({size for size in (1280, 1400, 1500, most) if size <= most} | {min(most, 65_535)})


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


def _loses(volley: Volley) -> bool:
    sent, arrived = volley.sent.get(_SMALL, 0), volley.arrived.get(_SMALL, 0)
    return bool(sent and arrived) and 1 - arrived / sent > _LOST


def _has_hole(volley: Volley) -> bool:
    """Small packets arrive, and of some larger size none does."""
    if not volley.arrived.get(_SMALL):
        return False
    return any(count >= _LARGE_COUNT // 2 and not volley.arrived.get(size) for size, count in volley.sent.items())


# -- throughput


def _rates(peers: _Peers, found: Measurements, *, thorough: bool, iperf: bool) -> None:
    hosts = [host for host in peers.host_helpers.hosts if host in peers.ports]
    reachable = {(a.a, a.b) for a in found.attempts if a.outcome == "connected" and a.kind == "high"}
    # Where large packets vanish every test would only wait for its end.
    reachable -= {(v.a, v.b) for v in found.volleys if _has_hole(v)}
    number = 0

    def test(pairs: Sequence[Pair]) -> dict[Pair, bool]:
        nonlocal number
        number += 1
        usable = [p for p in pairs if p in reachable and p[::-1] in reachable]
        there = _one_way(peers, found, usable, number, iperf=iperf)
        back = _one_way(peers, found, [p[::-1] for p in usable], number, iperf=iperf)
        found.rates += [*there, *back]
        usual = median([r.gbits for r in found.rates if r.gbits is not None] or [0.0])
        both = {p: [r for r in (*there, *back) if {r.a, r.b} == set(p)] for p in usable}
        told = {p: [r.gbits for r in own if r.gbits is not None] for p, own in both.items()}
        return {p: min(own) >= _SLOW * usual for p, own in told.items() if own}

    # The median is known only at the end: then all pairs are judged by the same.
    rounds = _in_rounds(hosts, test, thorough=thorough)
    blame = settle(hosts, _judged(found.rates), rounds)
    suspects = _suspects(blame, _judged(found.rates))
    if suspects:
        _measure_alone(peers, found, suspects, number, iperf=iperf)
        blame = settle(hosts, _judged(found.rates), rounds)
    found.slow = blame


def _suspects(blame: Blame, judged: Mapping[Pair, Sequence[bool]]) -> list[Pair]:
    """Slow pairs to measure once more: those that are blamed alone, and one of every host that is."""
    slow = [pair for pair, tests in judged.items() if not any(tests)]
    found = list(blame.pairs)
    for host in (*blame.hosts, *blame.unsettled, *(group[0] for group in blame.groups)):
        found += [pair for pair in slow if host in pair and pair not in found][:1]
    return found[:_ALONE]


def _measure_alone(peers: _Peers, found: Measurements, suspects: Sequence[Pair], number: int, *, iperf: bool) -> None:
    """Each slow pair alone, beside a pair that was not slow: a busy moment slows both, a bad link only one."""
    judged = _judged(found.rates)
    good = [pair for pair, tests in judged.items() if all(tests) and not {h for p in suspects for h in p} & set(pair)]
    good = good or [pair for pair, tests in judged.items() if any(tests)]
    if not good:
        return
    left = list(suspects)
    for turn in range(_TURNS):
        number += 1
        reference = _lowest(_both_ways(peers, found, good[turn % len(good)], number, iperf=iperf))
        again = {pair: _both_ways(peers, found, pair, number, iperf=iperf) for pair in left}
        found.rates += [replace(rate, reference=reference) for own in again.values() for rate in own]
        left = [pair for pair, own in again.items() if _CLEARLY * reference <= _lowest(own) < _SLOW * reference]


def _both_ways(peers: _Peers, found: Measurements, pair: Pair, number: int, *, iperf: bool) -> list[Rate]:
    return [r for way in (pair, pair[::-1]) for r in _one_way(peers, found, [way], number, iperf=iperf)]


def _lowest(rates: Sequence[Rate]) -> float:
    return min((rate.gbits for rate in rates if rate.gbits is not None), default=0.0)


def _judged(rates: Sequence[Rate]) -> dict[Pair, list[bool]]:
    """Every measurement of every pair against the median of all."""
    usual = median([r.gbits for r in rates if r.gbits is not None] or [0.0])
    tests: dict[tuple[Pair, int], list[bool]] = {}
    for rate in rates:
        pair = (min(rate.a, rate.b), max(rate.a, rate.b))
        if rate.gbits is not None:  # what could not be measured is not slow
            fast = _SLOW * (usual if rate.reference is None else min(usual, rate.reference))
            tests.setdefault((pair, rate.round), []).append(rate.gbits >= fast)
    results: dict[Pair, list[bool]] = {}
    for (pair, _), ways in tests.items():
        results.setdefault(pair, []).append(all(ways))
    return results


def _one_way(peers: _Peers, found: Measurements, ways: Sequence[Pair], number: int, *, iperf: bool) -> list[Rate]:
    """By iperf3 where both ends have it, else by our own sender."""
    able = {host for host, about in peers.ports.items() if iperf and about.get("iperf")}
    served = peers.host_helpers.ask({b: {"do": "iperf"} for a, b in ways if {a, b} <= able}, _ASK_S)
    ports = {host: reply.result.get("port") for host, reply in served.items() if isinstance(reply.result, dict)}
    requests = {
        a: {"do": "rate", "address": _way(peers, found, a, b), "port": peers.ports[b]["high"], "token": peers.token,
            "seconds": _SECONDS, "iperf_port": ports.get(b)}
        for a, b in ways
    }  # fmt: skip
    partner = dict(ways)
    replies = peers.host_helpers.ask(requests, _ASK_S)
    rates = []
    for a, reply in replies.items():
        told: Mapping[str, Any] = reply.result if isinstance(reply.result, dict) else {"why": reply.why}
        gbits = told.get("gbits")
        again = told.get("retransmits")
        rates.append(
            Rate(a, partner[a], float(gbits) if isinstance(gbits, (int, float)) else None, number,
                 str(told.get("why", "")), again if isinstance(again, int) else None)
        )  # fmt: skip
    return rates


# -- for the report


def states(inspection: Inspection) -> list[LinkCheck]:
    """Each pair that was tested, in words; healthy ones too."""
    pairs: dict[Pair, list[tuple[str, str]]] = {}

    def say(a: str, b: str, state: str, why: str) -> None:
        pairs.setdefault((min(a, b), max(a, b)), []).append((state, why))

    for tried in inspection.attempts:
        fine = tried.outcome in ("connected", "other service", "refused")
        why = "" if fine else f"{tried.a} → {tried.b} port {tried.port}: {tried.outcome}"
        say(tried.a, tried.b, "healthy" if fine else "unhealthy", why)
    for v in inspection.volleys:
        if _loses(v):
            share = 1 - v.arrived.get(_SMALL, 0) / v.sent[_SMALL]
            say(v.a, v.b, "unhealthy", f"{v.a} → {v.b}: {share:.1%} of packets lost")
        elif _has_hole(v):
            gone = min(s for s in v.sent if not v.arrived.get(s))
            say(v.a, v.b, "unhealthy", f"{v.a} → {v.b}: packets of {gone} bytes vanish")
        elif not v.arrived and v.sent:
            say(v.a, v.b, "unhealthy", f"{v.a} → {v.b}: no datagram arrives")
        else:
            say(v.a, v.b, "healthy", "")
    slow = _judged(inspection.rates)
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
