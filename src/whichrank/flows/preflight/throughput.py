"""Throughput between hosts by TCP, in rounds of pairs: a bad host or uplink in few of them, one slow pair in all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from whichrank.fleet.pairing import Pair, in_rounds, settle
from whichrank.flows.preflight.datagrams import has_hole
from whichrank.flows.preflight.peers import ASK_S, Peers
from whichrank.model.preflight import Blame
from whichrank.records.inspection import Rate, usual_gbits

_SECONDS = 0.5
_SLOW, _CLEARLY = 0.5, 0.2
"""Below this share of what is usual a pair is slow; below the second one no busy moment explains it."""
_ALONE, _TURNS = 4, 3
"""How many slow pairs are measured again alone, and how often at most."""


def rates(peers: Peers, *, thorough: bool, iperf: bool) -> None:
    """In rounds of pairs, one way after the other; slow pairs once more, alone."""
    hosts, found = peers.listening, peers.found
    reachable = set(_open_ports(peers))
    # Where large packets vanish every test would only wait for its end.
    reachable -= {(v.a, v.b) for v in found.volleys if has_hole(v)}
    number = 0

    def test(pairs: Sequence[Pair]) -> dict[Pair, bool]:
        nonlocal number
        number += 1
        usable = [p for p in pairs if p in reachable and p[::-1] in reachable]
        there = _one_way(peers, usable, number, iperf=iperf)
        back = _one_way(peers, [p[::-1] for p in usable], number, iperf=iperf)
        found.rates += [*there, *back]
        usual = usual_gbits(found.rates)
        both = {p: [r for r in (*there, *back) if {r.a, r.b} == set(p)] for p in usable}
        told = {p: [r.gbits for r in own if r.gbits is not None] for p, own in both.items()}
        return {p: min(own) >= _SLOW * usual for p, own in told.items() if own}

    # What is usual is known only at the end: then all pairs are judged by the same.
    rounds = in_rounds(hosts, test, thorough=thorough)
    blame = settle(hosts, judged(found.rates), rounds)
    suspects = _suspects(blame, judged(found.rates))
    if suspects:
        _measure_alone(peers, suspects, number, iperf=iperf)
        blame = settle(hosts, judged(found.rates), rounds)
    found.slow = blame


def _open_ports(peers: Peers) -> dict[Pair, int]:
    """(From, to) -> a high port of the second on which the first has connected."""
    attempts = peers.found.attempts
    return {(a.a, a.b): a.port for a in attempts if a.outcome == "connected" and a.kind == "high"}


def _suspects(blame: Blame, results: Mapping[Pair, Sequence[bool]]) -> list[Pair]:
    """Slow pairs to measure once more: those that are blamed alone, and one of every host that is."""
    slow = [pair for pair, tests in results.items() if not any(tests)]
    found = list(blame.pairs)
    for host in (*blame.hosts, *blame.unsettled, *(group[0] for group in blame.groups)):
        found += [pair for pair in slow if host in pair and pair not in found][:1]
    return found[:_ALONE]


def _measure_alone(peers: Peers, suspects: Sequence[Pair], number: int, *, iperf: bool) -> None:
    """Each slow pair alone, beside a pair that was not slow: a busy moment slows both, a bad link only one."""
    found = peers.found
    results = judged(found.rates)
    good = [pair for pair, tests in results.items() if all(tests) and not {h for p in suspects for h in p} & set(pair)]
    good = good or [pair for pair, tests in results.items() if any(tests)]
    if not good:
        return
    left = list(suspects)
    for turn in range(_TURNS):
        number += 1
        reference = _lowest(_both_ways(peers, good[turn % len(good)], number, iperf=iperf))
        again = {pair: _both_ways(peers, pair, number, iperf=iperf) for pair in left}
        found.rates += [replace(rate, reference=reference) for own in again.values() for rate in own]
        left = [pair for pair, own in again.items() if _CLEARLY * reference <= _lowest(own) < _SLOW * reference]


def _both_ways(peers: Peers, pair: Pair, number: int, *, iperf: bool) -> list[Rate]:
    return [r for way in (pair, pair[::-1]) for r in _one_way(peers, [way], number, iperf=iperf)]


def _lowest(rates: Sequence[Rate]) -> float:
    return min((rate.gbits for rate in rates if rate.gbits is not None), default=0.0)


def judged(rates: Sequence[Rate]) -> dict[Pair, list[bool]]:
    """Every measurement of every pair against what is usual."""
    usual = usual_gbits(rates)
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


def _one_way(peers: Peers, ways: Sequence[Pair], number: int, *, iperf: bool) -> list[Rate]:
    """By iperf3 where both ends have it, else by our own sender."""
    able = {host for host, about in peers.ports.items() if iperf and about.get("iperf")}
    served = peers.host_helpers.ask({b: {"do": "iperf"} for a, b in ways if {a, b} <= able}, ASK_S)
    iperf_ports = {host: reply.result.get("port") for host, reply in served.items() if isinstance(reply.result, dict)}
    ports = _open_ports(peers)
    requests = {
        a: {"do": "rate", "address": peers.way(a, b), "port": ports[a, b], "token": peers.token,
            "seconds": _SECONDS, "iperf_port": iperf_ports.get(b)}
        for a, b in ways
    }  # fmt: skip
    partner = dict(ways)
    replies = peers.host_helpers.ask(requests, ASK_S)
    told_rates = []
    for a, reply in replies.items():
        told: Mapping[str, Any] = reply.result if isinstance(reply.result, dict) else {"why": reply.why}
        gbits = told.get("gbits")
        again = told.get("retransmits")
        told_rates.append(
            Rate(a, partner[a], float(gbits) if isinstance(gbits, (int, float)) else None, number,
                 str(told.get("why", "")), again if isinstance(again, int) else None)
        )  # fmt: skip
    return told_rates
