"""What is measured between hosts, in the order in which one needs the other: clocks, names, then the ways between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whichrank.evidence.probes.names import usual
from whichrank.fleet.engines import Engine
from whichrank.fleet.host_helpers import HostHelpers
from whichrank.flows.preflight import connections, datagrams, throughput
from whichrank.flows.preflight.peers import ASK_S, Measurements, Peers
from whichrank.model.preflight import Launch
from whichrank.records.inspection import Clock

if TYPE_CHECKING:
    from whichrank.flows.preflight.check import Wishes


def measure(everyone: HostHelpers, engine: Engine, launch: Launch, token: str, wishes: Wishes) -> Measurements:
    """In the order in which one needs the other."""
    found = Measurements(clocks=_clocks(everyone))
    served = everyone.ask_all({"do": "serve", "token": token, "port": launch.port}, ASK_S)
    peers = Peers(
        everyone, token, {host: engine.address(host) for host in engine.hosts},
        {host: r.result for host, r in served.items() if isinstance(r.result, dict)}, found,
    )  # fmt: skip
    _learn_addresses(peers, launch)
    _replace_aliases(peers)
    # Datagrams first: where only one direction works, neighbours soon forget each other's link address, and both end.
    datagrams.volleys(peers, thorough=wishes.thorough)
    connections.connect(peers, wishes.connect_s)
    if wishes.full:
        throughput.rates(peers, thorough=wishes.thorough, iperf=wishes.iperf)
        _rdma(peers, thorough=wishes.thorough)
    return found


def _rdma(peers: Peers, *, thorough: bool) -> None:
    """By perftest, where hosts have active RDMA ports and the program."""
    able = [host for host, about in peers.ports.items() if about.get("perftest")]
    if len(able) < 2:
        return
    from whichrank.flows.preflight import rdma

    asked = {host: {"do": "probe", "probes": ["rdma"]} for host in able}
    ports: dict[str, dict[str, Any]] = {}
    for host, reply in peers.host_helpers.ask(asked, ASK_S).items():
        value = (reply.result or {}).get("rdma", {}).get("value") if isinstance(reply.result, dict) else None
        own = {str(p.get("device")): p for p in (value or {}).get("ports", []) if p.get("state") == "ACTIVE"}
        if own:
            ports[host] = own
    ways = {(a, b): way for a in ports for b in ports if a != b and (way := peers.way(a, b))}
    peers.found.rdma_rates, peers.found.rdma_slow = rdma.measure(peers.host_helpers, ports, ways, thorough=thorough)


def _clocks(everyone: HostHelpers) -> list[Clock]:
    """Of several answers the one with the shortest way counts: half of it is the error."""
    best: dict[str, Clock] = {}
    for _ in range(3):
        for host, reply in everyone.ask_all({"do": "clock"}, ASK_S).items():
            if isinstance(reply.result, dict):
                middle, error = (reply.sent_s + reply.received_s) / 2, (reply.received_s - reply.sent_s) / 2
                clock = Clock(host, float(reply.result["now_s"]) - middle, error)
                if host not in best or error < best[host].error_s:
                    best[host] = clock
    return list(best.values())


def _learn_addresses(peers: Peers, launch: Launch) -> None:
    found = peers.found
    names = sorted(set(peers.name.values()))
    asked = peers.host_helpers.ask_all({"do": "resolve", "names": names}, ASK_S)
    by_name = {name: host for host, name in peers.name.items()}
    for host, reply in asked.items():
        if isinstance(reply.result, dict):
            found.names[host] = {
                by_name[str(n)]: [str(a) for a in own] for n, own in reply.result.items() if n in by_name
            }
    probed = peers.host_helpers.ask_all(
        {"do": "probe", "probes": ["interfaces"], "launch": {"port": launch.port}}, ASK_S
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


def _replace_aliases(peers: Peers) -> None:
    """A name that no host resolves is an alias of ssh or Slurm, which no job uses: the host's address stands for it."""
    found = peers.found
    for host in peers.listening:
        if any(answers.get(host) for answers in found.names.values()) or not found.addresses.get(host):
            continue
        reached = str(peers.ports[host].get("reached_at") or "")
        own = found.addresses[host]
        peers.name[host] = reached if reached in own else usual(own)
        for answers in found.names.values():
            answers.pop(host, None)
