"""RDMA bandwidth between hosts, adapter by adapter: rounds of pairs as for TCP, all adapters of a host at once.

Adapters of the same name are taken to be one rail: fabrics that connect rails only among themselves are common.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from whichrank.fleet.host_helpers import HostHelpers
from whichrank.fleet.pairing import Pair, Search, all_pairs, ordered, settle
from whichrank.model.preflight import Blame
from whichrank.records.inspection import RdmaRate

SLOW = 0.5
"""Below this share of the median of its rail, or of the port's own rate, a pair is slow."""
_ASK_S = 40.0
Adapters = Mapping[str, Mapping[str, Any]]
"""Device -> its port, of one host."""
Tests = dict[str, list[dict[str, Any]]]


def measure(
    everyone: HostHelpers, ports: Mapping[str, Adapters], addresses: Mapping[Pair, str], *, thorough: bool
) -> tuple[list[RdmaRate], dict[str, Blame]]:
    """Every rail that at least two hosts have; what was measured, and who is to blame by rail."""
    rails = sorted({device for adapters in ports.values() for device in adapters})
    hosts = {rail: [host for host in ports if rail in ports[host]] for rail in rails}
    hosts = {rail: own for rail, own in hosts.items() if len(own) > 1}
    rates: list[RdmaRate] = []
    searches = {rail: Search(own) for rail, own in hosts.items()}
    tournaments = {rail: list(all_pairs(own)) for rail, own in hosts.items()} if thorough else {}
    number = 0
    while True:
        if thorough:
            wanted = {rail: rounds[number] for rail, rounds in tournaments.items() if number < len(rounds)}
        else:
            wanted = {rail: pairs for rail, search in searches.items() if (pairs := search.next_round())}
        if not wanted:
            break
        number += 1
        rates += _round(everyone, ports, addresses, wanted, number)
        for rail, pairs in wanted.items():
            judged = _judged(rates, rail)
            searches[rail].note({p: judged[q][-1] for p in pairs if (q := ordered(*p)) in judged})
    return rates, {rail: settle(own, _judged(rates, rail), number) for rail, own in hosts.items()}


def _judged(rates: Sequence[RdmaRate], rail: str) -> dict[Pair, list[bool]]:
    """Every test of every pair of a rail; one that RDMA did not get through failed."""
    own = [rate for rate in rates if rate.device == rail]
    usual = median([r.gbits for r in own if r.gbits] or [0.0])
    tests: dict[tuple[Pair, int], list[bool]] = {}
    for rate in own:
        if rate.gbits is None and not rate.unreached:
            continue  # the program failed for a reason of its own: nothing is known about the path
        good = rate.gbits is not None and rate.gbits >= SLOW * max(usual, rate.port_gbits or 0.0)
        tests.setdefault((ordered(rate.a, rate.b), rate.round), []).append(good)
    results: dict[Pair, list[bool]] = {}
    for (pair, _), ways in tests.items():
        results.setdefault(pair, []).append(all(ways))
    return results


def _round(
    everyone: HostHelpers, ports: Mapping[str, Adapters], addresses: Mapping[Pair, str],
    wanted: Mapping[str, Sequence[Pair]], number: int,
) -> list[RdmaRate]:  # fmt: skip
    """Both ways at the same time: links are full duplex."""
    ways = [(a, b, rail) for rail, pairs in wanted.items() for p in pairs for a, b in (p, p[::-1])]
    ways = [way for way in ways if addresses.get((way[0], way[1]))]
    serving: Tests = {}
    for _, b, rail in ways:
        serving.setdefault(b, []).append(_test(ports[b][rail], rail))
    asked = {host: {"do": "rdma_serve", "tests": tests} for host, tests in serving.items()}
    served = {host: iter(r.result or []) for host, r in everyone.ask(asked, _ASK_S).items()}
    sending: Tests = {}
    meant: dict[str, list[tuple[str, str, str]]] = {}
    for way in ways:
        a, b, rail = way
        port = next(served[b], None)
        if port is None:
            continue
        sending.setdefault(a, []).append({**_test(ports[a][rail], rail), "address": addresses[a, b], "port": port})
        meant.setdefault(a, []).append(way)
    asked = {host: {"do": "rdma_send", "tests": tests} for host, tests in sending.items()}
    found = []
    for host, reply in everyone.ask(asked, _ASK_S).items():
        for (a, b, rail), told in zip(meant[host], reply.result or [], strict=False):
            found.append(_rate(a, b, rail, told, number, _gbits(ports[a][rail])))
    return found


def _test(port: Mapping[str, Any], rail: str) -> dict[str, Any]:
    ethernet = port.get("layer") == "Ethernet"
    return {"device": rail, "ib_port": port.get("port"), "gid": port.get("roce_gid") if ethernet else None}


def _rate(a: str, b: str, rail: str, told: Mapping[str, Any], number: int, port_gbits: float | None) -> RdmaRate:
    gbits, why = told.get("gbits"), str(told.get("why", ""))
    return RdmaRate(a, b, rail, float(gbits) if isinstance(gbits, (int, float)) else None, number, why, port_gbits)


def _gbits(port: Mapping[str, Any]) -> float | None:
    """`400 Gb/sec (4X NDR)`."""
    try:
        return float(str(port.get("rate", "")).partition(" ")[0])
    except ValueError:
        return None
