"""What can be done to the cables of a drill: packets dropped, refused, lost, held back; links down. All by the kernel.

Faults are put into the bridge, where a real network has them: the hosts see nothing but what does not arrive.
"""

from __future__ import annotations

import time

from whichrank.lab.hosts import Host, Network, command, inside, ip

_TABLE = "whichrank"


def drop(network: Network, one: Host, other: Host | None = None) -> None:
    """Nothing passes any more between two hosts, or between one and all others."""
    _forward(network, *_ways(one, other), action="drop")


def one_way(network: Network, sender: Host, receiver: Host | None = None) -> None:
    """What the sender sends does not arrive; what comes back does."""
    _forward(network, _ways(sender, receiver)[0], action="drop")


def lose(network: Network, host: Host, percent: int) -> None:
    """Of all packets from and to the host this share is lost at random."""
    _forward(network, *(f"{way} numgen random mod 100 < {percent}" for way in _ways(host)), action="drop")


def shrink_path_mtu(network: Network, host: Host, octets: int) -> None:
    """Larger packets from and to the host vanish without a notice: a black hole for the path's MTU."""
    _forward(network, *(f"{way} meta length > {octets}" for way in _ways(host)), action="drop")


def close_ports(host: Host, ports: str) -> None:
    """A firewall of the host: whoever wants to open a connection to these ports gets no answer."""
    _rules(host.namespace, "inet", "input", [_opening(ports)], "drop")


def reject_ports(host: Host, ports: str) -> None:
    """A firewall that says no: "no route to host" is what the other side hears."""
    _rules(host.namespace, "inet", "input", [_opening(ports)], "reject with icmpx type admin-prohibited")


def reset_ports(host: Host, ports: str) -> None:
    """A firewall that answers in the place of whoever listens: connection refused."""
    _rules(host.namespace, "inet", "input", [_opening(ports)], "reject with tcp reset")


def limit(network: Network, host: Host, rate: str) -> None:
    """Its cable carries no more than this (`20mbit`), in either direction."""
    for namespace, device in ((host.namespace, "eth0"), (network.switch, host.port)):
        command("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate,
                "burst", "64kb", "latency", "400ms")  # fmt: skip


def delay(network: Network, host: Host, milliseconds: float) -> None:
    """Each packet of the host takes so much longer, there and back; its cable must be a relay."""
    relay = network.relays[host.port]
    if relay.stdin is not None:
        relay.stdin.write(f"{milliseconds}\n".encode())
        relay.stdin.flush()


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
    """How many packets the rules have caught: a fault that catches nothing is none."""
    total = 0
    for namespace in (network.switch, *(host.namespace for host in network.hosts)):
        words = inside(namespace, "nft", "list", "ruleset").split()
        total += sum(int(words[i + 1]) for i, word in enumerate(words[:-1]) if word == "packets")
    return total


def _opening(ports: str) -> str:
    """The first packet of a connection: what the host itself opened is answered."""
    return f"iifname eth0 tcp dport {ports} tcp flags & (syn | ack) == syn"


def _ways(one: Host, other: Host | None = None) -> tuple[str, str]:
    """What matches packets of a host at the bridge: there and back."""
    if other is None:
        return f"iifname {one.port}", f"oifname {one.port}"
    return f"iifname {one.port} oifname {other.port}", f"iifname {other.port} oifname {one.port}"


def _forward(network: Network, *matches: str, action: str) -> None:
    _rules(network.switch, "bridge", "forward", matches, action)


def _rules(namespace: str, family: str, hook: str, matches: tuple[str, ...] | list[str], action: str) -> None:
    """All in one transaction: there is no moment at which only half of it holds."""
    chain = f"{family} {_TABLE} {hook}"
    lines = [f"add table {family} {_TABLE}", f"add chain {chain} {{ type filter hook {hook} priority 0; }}"]
    lines += [f"add rule {chain} {match} counter {action}" for match in matches]
    inside(namespace, "nft", "; ".join(lines))
