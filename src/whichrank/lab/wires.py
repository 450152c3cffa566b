"""What can be done to the cables of a drill: packets dropped, refused, lost, held back; links down. All by the kernel.

Faults are put into the bridge where a real network has them, so the hosts see nothing but what does not arrive.
"""

from __future__ import annotations

import time

from whichrank.lab.hosts import Host, Network, command, inside, ip

_TABLE = "whichrank"


def drop(network: Network, one: Host, other: Host | None = None) -> None:
    """Nothing passes any more between two hosts, or between one and all others."""
    one_way(network, one, other)
    if other is None:
        _forward(network, f"oifname {one.port}", "drop")
    else:
        one_way(network, other, one)


def one_way(network: Network, sender: Host, receiver: Host | None = None) -> None:
    """What the sender sends does not arrive; what comes back does."""
    there = f" oifname {receiver.port}" if receiver else ""
    _forward(network, f"iifname {sender.port}{there}", "drop")


def drop_port(network: Network, host: Host, ports: str) -> None:
    """A firewall of the host: new and old connections to these ports get no answer."""
    _input(host, f"iifname eth0 tcp dport {ports}", "drop")


def reject(network: Network, host: Host, ports: str) -> None:
    """A firewall that says no: "no route to host" is what the other side hears."""
    _input(host, f"iifname eth0 tcp dport {ports}", "reject with icmpx type admin-prohibited")


def lose(network: Network, host: Host, percent: int) -> None:
    """Of all packets from and to the host this share is lost at random."""
    for way in ("iifname", "oifname"):
        _forward(network, f"{way} {host.port} numgen random mod 100 < {percent}", "drop")


def shrink_path_mtu(network: Network, host: Host, octets: int) -> None:
    """Larger packets from and to the host vanish without a notice: a black hole for the path's MTU."""
    for way in ("iifname", "oifname"):
        _forward(network, f"{way} {host.port} meta length > {octets}", "drop")


def limit(network: Network, host: Host, rate: str) -> None:
    """Its cable carries no more than this (`20mbit`), in either direction."""
    for namespace, device in ((host.namespace, "eth0"), (network.switch, host.port)):
        command("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate,
                "burst", "64kb", "latency", "400ms")  # fmt: skip


def link_down(network: Network, host: Host) -> None:
    """The cable is pulled at the switch: the host's interface loses its carrier."""
    ip("-n", network.switch, "link", "set", host.port, "down")


def link_up(network: Network, host: Host) -> None:
    ip("-n", network.switch, "link", "set", host.port, "up")


def flap(network: Network, host: Host, seconds: float) -> None:
    """Down for some seconds, and up again."""
    link_down(network, host)
    time.sleep(seconds)
    link_up(network, host)


def hits(network: Network) -> int:
    """How many packets the rules have caught: a fault that hits nothing is none."""
    total = 0
    for namespace in (network.switch, *(h.namespace for h in network.hosts)):
        words = inside(namespace, "nft", "list", "ruleset").split()
        total += sum(int(words[i + 1]) for i, word in enumerate(words[:-1]) if word == "packets")
    return total


def _forward(network: Network, match: str, action: str) -> None:
    _rule(network.switch, "bridge", "forward", match, action)


def _input(host: Host, match: str, action: str) -> None:
    _rule(host.namespace, "inet", "input", match, action)


def _rule(namespace: str, family: str, hook: str, match: str, action: str) -> None:
    lines = (
        f"add table {family} {_TABLE}; "
        f"add chain {family} {_TABLE} {hook} {{ type filter hook {hook} priority 0; }}; "
        f"add rule {family} {_TABLE} {hook} {match} counter {action}"
    )
    inside(namespace, "nft", lines)
