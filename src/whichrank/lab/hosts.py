"""Hosts that exist for one drill only: network namespaces with names and addresses, joined by a bridge.

The bridge has a namespace of its own, so nothing appears in the machine's network. Names carry the process that made
them; what a dead one left behind is swept away by the next.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from whichrank.evidence.collectors import processes
from whichrank.lab import namespaces

PREFIX = "whichrank-"
PLACES = "WHICHRANK_LAB_HOSTS"
"""For the ranks: one `namespace,name,hosts file` per rank, separated by blanks."""
_NAMED = Path("/run/netns")
_TOOLS = ("ip", "nft", "tc")
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
    """Hosts on one bridge, from `up` to `down`."""

    names: Sequence[str]
    mtu: int = 1500
    hosts: list[Host] = field(default_factory=list)
    folder: Path | None = None
    switch: str = ""

    def __enter__(self) -> Network:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def up(self) -> None:
        """Make namespaces, bridge and cables; what was made is taken down again if a step fails."""
        sweep()
        mark = f"{PREFIX}{os.getpid()}-{_started(os.getpid())}-{os.urandom(2).hex()}"
        self.switch = f"{mark}-switch"
        self.folder = Path(tempfile.mkdtemp(prefix=f"{mark}-"))
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
        hosts_file = self._hosts_file()
        lines = ["127.0.0.1 localhost", *(f"{h.address} {h.name}" for h in self.hosts)]
        # torch looks up the names of IPv6-mapped addresses, and prints nonsense where there are none.
        lines += [f"::ffff:{h.address} {h.name}" for h in self.hosts]
        hosts_file.write_text("\n".join(lines) + "\n", encoding="ascii")
        hosts_file.chmod(0o644)
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "br0", "mtu", str(self.mtu), "type", "bridge")
        ip("-n", self.switch, "link", "set", "br0", "up")
        for host in self.hosts:
            self._plug(host)

    def _plug(self, host: Host) -> None:
        ip("netns", "add", host.namespace)
        mtu = str(self.mtu)
        ip("-n", host.namespace, "link", "add", "eth0", "mtu", mtu, "type", "veth",
           "peer", "name", host.port, "mtu", mtu, "netns", self.switch)  # fmt: skip
        ip("-n", self.switch, "link", "set", host.port, "master", "br0", "up")
        ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", host.namespace, "link", "set", device, "up")

    def down(self) -> None:
        """End what still runs on the hosts and remove them; never fails."""
        for namespace in (*(h.namespace for h in self.hosts), self.switch):
            if namespace:
                _remove(namespace)
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.hosts, self.switch, self.folder = [], "", None

    def host_of(self, rank: int, world: int) -> Host:
        """Ranks fill the hosts one after the other, as launchers place them."""
        return self.hosts[rank * len(self.hosts) // world]

    def ranks_of(self, host: Host, world: int) -> tuple[int, ...]:
        return tuple(rank for rank in range(world) if self.host_of(rank, world) is host)

    def places(self, world: int) -> dict[str, str]:
        """The variable by which each rank finds its host."""
        placed = [self.host_of(rank, world) for rank in range(world)]
        return {PLACES: " ".join(f"{h.namespace},{h.name},{self._hosts_file()}" for h in placed)}

    def _hosts_file(self) -> Path:
        if self.folder is None:
            raise LabError("the hosts are not up")
        return self.folder / "hosts"


def enter_as(rank: int) -> None:
    """Called by a rank before it makes its process group: go to its host, where the drill has any."""
    places = os.environ.get(PLACES, "").split()
    if rank < len(places):
        namespace, name, hosts_file = places[rank].split(",")
        namespaces.enter(namespace, name, Path(hosts_file))


def missing() -> str:
    """What this machine lacks for such hosts; empty where nothing."""
    if os.geteuid() != 0:
        return "root"
    absent = [tool for tool in _TOOLS if shutil.which(tool) is None]
    return f"the programs {', '.join(absent)}" if absent else ""


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


def sweep() -> list[str]:
    """Remove the hosts of drills whose process is gone; returns the names of their namespaces."""
    swept = []
    for path in sorted(_NAMED.glob(f"{PREFIX}*")) if _NAMED.is_dir() else ():
        if not _owned(path.name):
            _remove(path.name)
            swept.append(path.name)
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*-*-*"):
        if (folder / "hosts").exists() and not _owned(folder.name):
            shutil.rmtree(folder, ignore_errors=True)
    return swept


def _owned(name: str) -> bool:
    """Whether the process that made it is still there."""
    words = name.removeprefix(PREFIX).split("-")
    try:
        return processes.same(int(words[0]), int(words[1]))
    except (IndexError, ValueError):
        return True  # not a name of ours


def _started(pid: int) -> int:
    row = processes.stat(pid)
    return row.start_ticks if row else 0


def _remove(namespace: str) -> None:
    with suppress(LabError, ValueError):
        for pid in command("ip", "netns", "pids", namespace).split():
            # They run inside a namespace that nobody else knows: they are the drill's.
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    for _ in range(20):
        with suppress(LabError):
            ip("netns", "del", namespace)
        if not (_NAMED / namespace).exists():
            return
        time.sleep(0.05)
