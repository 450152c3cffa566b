"""Hosts that exist for one drill only: network namespaces with names and addresses, joined by a bridge.

The bridge has a namespace of its own, so nothing appears in the machine's network. All names carry the id of the drill:
`place` removes what a drill leaves behind.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whichrank.lab.job import Job
from whichrank.lab.place import name_of
from whichrank.lab.setup import Setup
from whichrank.lab.workloads.plan import FOLDER, Plan

MOST = 4
"""Hosts that ranks are spread over, where there are as many ranks."""
_STEP_S = 10.0


class LabError(Exception):
    """A part of the lab could not be built or broken."""


@dataclass(frozen=True, slots=True)
class Host:
    """One host of the drill."""

    name: str
    namespace: str
    address: str
    port: str
    """The other end of its cable, at the bridge."""


@dataclass(slots=True)
class Network:
    """Hosts on one bridge."""

    folder: Path
    names: Sequence[str]
    mtu: int = 1500
    relayed: frozenset[int] = frozenset()
    """Hosts, by number, whose cable is a process: it can be made longer."""
    hosts: list[Host] = field(default_factory=list)
    switch: str = ""
    relays: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    """By the cable's port at the bridge."""

    def __enter__(self) -> Network:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def up(self) -> None:
        """Make namespaces, bridge and cables; what was made is taken down again if a step fails."""
        mark = f"whichrank-{name_of(self.folder)}"
        self.switch = f"{mark}-switch"
        self.hosts = [
            Host(name, f"{mark}-{number}", f"10.77.0.{number + 1}", f"p{number}")
            for number, name in enumerate(self.names)
        ]
        try:
            self._build()
        except BaseException:
            self.down()
            raise

    def _build(self) -> None:
        lines = ["127.0.0.1 localhost", *(f"{h.address} {h.name}" for h in self.hosts)]
        # torch looks up the names of addresses that are mapped into IPv6, and prints nonsense where there are none.
        lines += [f"::ffff:{h.address} {h.name}" for h in self.hosts]
        (self.folder / "etc_hosts").write_text("\n".join(lines) + "\n", encoding="ascii")
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "br0", "mtu", str(self.mtu), "type", "bridge")
        ip("-n", self.switch, "link", "set", "br0", "up")
        for number, host in enumerate(self.hosts):
            ip("netns", "add", host.namespace)
            if number in self.relayed:
                self.relays[host.port] = self._relay(host)
            else:
                self._cable(host)
            self._plug(host)

    def _cable(self, host: Host) -> None:
        mtu = str(self.mtu)
        ip("-n", host.namespace, "link", "add", "eth0", "mtu", mtu, "type", "veth",
           "peer", "name", host.port, "mtu", mtu, "netns", self.switch)  # fmt: skip

    def _relay(self, host: Host) -> subprocess.Popen[bytes]:
        ends = (f"{host.namespace},eth0", f"{self.switch},{host.port}")
        relay = subprocess.Popen(  # noqa: S603 - the lab's own program
            [sys.executable, "-m", "whichrank.lab.cable", *ends],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, FOLDER: str(self.folder)},
        )  # fmt: skip
        if relay.stdout is None or not relay.stdout.readline():
            relay.wait(_STEP_S)
            raise LabError(f"the cable of {host.name} could not be made")
        return relay

    def _plug(self, host: Host) -> None:
        ip("-n", self.switch, "link", "set", host.port, "master", "br0", "up")
        ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", host.namespace, "link", "set", device, "up")

    def down(self) -> None:
        """Remove the hosts; never fails."""
        for relay in self.relays.values():
            relay.kill()
            relay.wait()
        for namespace in (*(h.namespace for h in self.hosts), self.switch):
            with suppress(LabError):
                ip("netns", "del", namespace)

    def entrance(self, host: Host) -> str:
        """The words by which a rank finds its host."""
        return f"{host.namespace} {host.name} {self.folder / 'etc_hosts'}"


def count_for(world: int) -> int:
    return min(world, MOST)


def host_number(plan: Plan, rank: int) -> int:
    """Ranks fill the hosts one after the other, as launchers place them."""
    return rank * count_for(plan.world) // plan.world


def ranks_beside(plan: Plan, rank: int) -> list[int]:
    """The ranks on the host of this one."""
    return [other for other in range(plan.world) if host_number(plan, other) == host_number(plan, rank)]


def spread(setup: Setup, *, mtu: int = 1500, relayed: frozenset[int] = frozenset()) -> Network:
    """For the launch of a fault: the job's ranks on hosts of their own, rank 0 and the store on the first."""
    names = [f"node{number + 1}" for number in range(count_for(setup.plan.world))]
    network = Network(setup.folder, names, mtu, relayed)
    network.up()
    places = setup.folder / "hosts"
    places.mkdir()
    for rank in range(setup.plan.world):
        host = network.hosts[host_number(setup.plan, rank)]
        (places / str(rank)).write_text(network.entrance(host), encoding="ascii")
    setup.launcher = "fork"
    setup.environment.update(MASTER_ADDR=network.hosts[0].address, MASTER_PORT="29500")
    setup.shared["network"] = network
    return network


def struck_host(plan: Plan, network: Network) -> Host:
    """The host of the rank that the plan names."""
    return network.hosts[host_number(plan, plan.rank)]


def strike(job: Job, act: Callable[..., None], *details: Any, **named: Any) -> None:
    """Do something to the wires of the plan's host when its step has come."""
    network = job.setup.shared["network"]
    job.await_step(job.plan.rank, job.plan.step)
    job.strike()
    act(network, struck_host(job.plan, network), *details, **named)


def ip(*arguments: str) -> str:
    return command("ip", *arguments)


def inside(namespace: str, *words: str) -> str:
    """A command with the network of that namespace."""
    return command("ip", "netns", "exec", namespace, *words)


def command(*words: str) -> str:
    """Run one step of the lab; its output. A step that fails says so."""
    try:
        done = subprocess.run(  # noqa: S603 - the lab's own steps
            list(words), capture_output=True, text=True, timeout=_STEP_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError(f"{' '.join(words)}: {error}") from error
    if done.returncode:
        raise LabError(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")
    return done.stdout
