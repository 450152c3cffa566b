"""Faults planted in a cluster of namespaces, each with what preflight must say of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.preflight.cluster import FAKETIME, Cluster
from whichrank.lab import wires
from whichrank.lab.hosts import command


@dataclass(frozen=True)
class Planted:
    """A fault: how it is planted, and which findings (by code) on which hosts or link are right."""

    plant: Callable[[Cluster], object]
    codes: tuple[str, ...]
    hosts: frozenset[str] = frozenset()
    link: frozenset[str] = frozenset()
    also: frozenset[str] = frozenset()
    """Codes that may be found beside, about the same place."""
    restart: str = ""
    """The host whose surroundings change: it starts anew before and after."""


def _one_way(cluster: Cluster) -> None:
    for other in cluster.names:
        if other != "node4":
            _one_way_pair(cluster, "node4", other)


def _one_way_pair(cluster: Cluster, sender: str, receiver: str) -> None:
    """Between hosts that have spoken before: without each other's link address neither direction would work."""
    meet = f"import socket; socket.create_connection(('{cluster.host(receiver).address}', 22), 5)"
    cluster.inside(sender, sys.executable, "-S", "-c", meet)
    wires.one_way(cluster.network, cluster.host(sender), cluster.host(receiver))


def limit_pair(cluster: Cluster, one: str, other: str, rate: str) -> None:
    """What the switch sends from one of the two to the other is held back; all else is not."""
    for sender, receiver in ((one, other), (other, one)):
        at = ("-n", cluster.network.switch)
        port = ("dev", cluster.host(receiver).port)
        command("tc", *at, "qdisc", "replace", *port, "root", "handle", "1:", "htb", "default", "1")
        command("tc", *at, "class", "add", *port, "parent", "1:", "classid", "1:1", "htb", "rate", "40gbit")
        command("tc", *at, "class", "add", *port, "parent", "1:", "classid", "1:2", "htb", "rate", rate)
        command("tc", *at, "filter", "add", *port, "parent", "1:", "protocol", "ip", "u32", "match", "ip", "src",
                cluster.host(sender).address, "flowid", "1:2")  # fmt: skip


def _shm(cluster: Cluster) -> None:
    cluster.shm["node6"] = "32m"


def _memlock(cluster: Cluster) -> None:
    cluster.extra["node3"] = "ulimit -l 64"


def _clock(cluster: Cluster) -> None:
    cluster.env["node1"] = f"LD_PRELOAD={FAKETIME} FAKETIME=+5s FAKETIME_DONT_FAKE_MONOTONIC=1"


def _name(cluster: Cluster) -> None:
    lines = (
        (cluster.folder / "etc_hosts").read_text().replace(f"{cluster.host('node7').address} node7", "10.77.0.99 node7")
    )
    cluster.hosts_lines["node2"] = lines


def _throttle(cluster: Cluster) -> None:
    cluster.throttled["node8"] = 0.1


def _quota(cluster: Cluster) -> None:
    """Less than half of a CPU, as a container's limit has it. `ip netns exec` hides the control groups; hosts don't."""
    cluster.throttled["node4"] = 0.4
    cluster.extra["node4"] = (
        "mount -t tmpfs groups /sys/fs/cgroup; mkdir /sys/fs/cgroup/cpu; mount -t cgroup -o cpu cpu /sys/fs/cgroup/cpu"
    )


FAULTS = {
    "blocked_port": Planted(
        lambda c: wires.close_ports(c.host("node3"), "30000-65535"), ("PREF102",), frozenset({"node3"})
    ),
    "rejected_port": Planted(
        lambda c: wires.reject_ports(c.host("node5"), "29500"), ("PREF102",), frozenset({"node5"})
    ),
    "reset_port": Planted(
        lambda c: wires.reset_ports(c.host("node2"), "30000-65535"), ("PREF102",), frozenset({"node2"})
    ),
    "some_high_ports": Planted(
        lambda c: wires.close_ports(c.host("node7"), "40000-50000"), ("PREF102",), frozenset({"node7"})
    ),
    "dropped_pair": Planted(
        lambda c: wires.drop(c.network, c.host("node2"), c.host("node6")),
        ("PREF102",),
        link=frozenset({"node2", "node6"}),
    ),
    "one_way": Planted(_one_way, ("PREF103",), frozenset({"node4"}), also=frozenset({"PREF102"})),
    "one_way_pair": Planted(
        lambda c: _one_way_pair(c, "node7", "node1"),
        ("PREF103",),
        link=frozenset({"node7", "node1"}),
        also=frozenset({"PREF102"}),
    ),
    "loss": Planted(
        lambda c: wires.lose(c.network, c.host("node2"), 5),
        ("PREF104",),
        frozenset({"node2"}),
        also=frozenset({"PREF106"}),
    ),
    "path_mtu": Planted(
        lambda c: wires.shrink_path_mtu(c.network, c.host("node5"), 1514),
        ("PREF105",),
        frozenset({"node5"}),
        also=frozenset({"PREF106"}),
    ),
    "path_mtu_of_ssh": Planted(
        lambda c: wires.shrink_path_mtu(c.network, c.host("node2"), 1414),
        ("PREF105",),
        frozenset({"node2"}),
        also=frozenset({"PREF106"}),
    ),
    "rate_limit": Planted(
        lambda c: wires.limit(c.network, c.host("node6"), "50mbit"), ("PREF106",), frozenset({"node6"})
    ),
    "wrong_name": Planted(_name, ("PREF107",), frozenset({"node2"}), also=frozenset({"PREF102"}), restart="node2"),
    "small_shm": Planted(_shm, ("PREH113",), frozenset({"node6"}), also=frozenset({"PREF110"}), restart="node6"),
    "low_memlock": Planted(_memlock, ("PREF110",), frozenset({"node3"}), restart="node3"),
    "clock": Planted(_clock, ("PREF108",), frozenset({"node1"}), restart="node1"),
    "throttled_cpu": Planted(
        _throttle, ("PREF109",), frozenset({"node8"}), also=frozenset({"PREF106"}), restart="node8"
    ),
    "cpu_quota": Planted(
        _quota, ("PREH110",), frozenset({"node4"}), also=frozenset({"PREF106", "PREF109", "PREF110"}), restart="node4"
    ),
}


@contextmanager
def planted(cluster: Cluster, fault: Planted) -> Iterator[None]:
    fault.plant(cluster)
    if fault.restart:
        cluster.restart_host(fault.restart)
    try:
        yield
    finally:
        cluster.heal()
        if fault.restart:
            cluster.as_new(fault.restart)
            cluster.restart_host(fault.restart)


def wrong(fault: Planted, findings: list[dict[str, object]]) -> list[str]:
    """What is not right about the findings: not found, not located, or somebody else accused."""
    problems = []
    told = [(str(f["code"]), place_of(f)) for f in findings if f["severity"] != "info"]
    where = fault.link or fault.hosts
    if not any(code in fault.codes and place == where for code, place in told):
        problems.append(f"not found or not located: {told}")
    for code, place in told:
        if code not in {*fault.codes, *fault.also} or not place <= where:
            # Of a pair that is cut both ends may be told apart from the pair.
            problems.append(f"accused: {code} {sorted(place)}")
    return problems


def place_of(finding: dict) -> frozenset[str]:
    subject = finding["subject"]
    ends = {end["host"] for link in subject["links"] for end in (link["a"], link["b"])}
    return frozenset({*subject["hosts"], *ends})
