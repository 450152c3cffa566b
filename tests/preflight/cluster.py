"""Hosts for preflight: network namespaces with their own name, addresses, /etc/hosts, /dev/shm, limits and sshd."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from whichrank.lab import catalogue, place
from whichrank.lab.hosts import Host, LabError, Network, command, inside, ip
from whichrank.lab.workloads.plan import FOLDER

ROOT = Path(__file__).parents[2]
READY = catalogue.NEEDS["namespaces"]() and shutil.which("sshd") is not None
FAKETIME = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))), None)

# A host's own mounts and name, then sshd. What is planted on one host is planted here, before anything runs there.
START = """
set -e
mount --make-rprivate /
mount --bind {etc_hosts} /etc/hosts
mount -t tmpfs -o size={shm} tmpfs /dev/shm
hostname {name}
mkdir -p /run/sshd
{extra}
exec /usr/sbin/sshd -D -e -f {config}
"""
CONFIG = """
Port 22
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/client_key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
MaxStartups 100
SetEnv PYTHONPATH={path} {env}
"""
CLIENT = """
Host *
  IdentityFile {folder}/client_key
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
  User root
"""


class Cluster:
    """A network of hosts with sshd; the command under test runs in the namespace of a login host of its own."""

    def __init__(self, count: int, *, mtu: int = 9000, relayed: frozenset[int] = frozenset()) -> None:
        self.folder = place.make()
        self.names = [f"node{n + 1}" for n in range(count)]
        self.network = Network(self.folder, [*self.names, "login"], mtu=mtu, relayed=relayed)
        self.shm = dict.fromkeys(self.names, "1g")
        self.extra: dict[str, str] = {}
        self.env: dict[str, str] = {}
        self.hosts_lines: dict[str, str] = {}
        self.throttled: dict[str, float] = {}
        """Host -> how much of a CPU it gets."""
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}

    def use_ipv6(self) -> None:
        """Take the IPv4 addresses away; before the start."""
        for number, host in enumerate(self.network.hosts):
            address = f"fd77::{number + 1:x}"
            ip("-n", host.namespace, "addr", "flush", "dev", "eth0")
            ip("-n", host.namespace, "addr", "add", f"{address}/64", "dev", "eth0", "nodad")
            self.network.hosts[number] = replace(host, address=address)
        lines = ["127.0.0.1 localhost", "::1 localhost", *(f"{h.address} {h.name}" for h in self.network.hosts)]
        (self.folder / "etc_hosts").write_text("\n".join(lines) + "\n")

    def host(self, name: str) -> Host:
        return next(h for h in self.network.hosts if h.name == name)

    def __enter__(self) -> Cluster:
        self.network.up()
        # People log in over a network of their own: what is done to the hosts' large packets must not cut them off.
        ip("-n", self.host("login").namespace, "link", "set", "eth0", "mtu", "1500")
        for key in ("host_key", "client_key"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / key)]
            subprocess.run(command, check=True)
        (self.folder / "ssh_config").write_text(CLIENT.format(folder=self.folder))
        return self

    def start(self) -> None:
        for name in self.names:
            self.start_host(name)
        for name in self.names:
            self._wait_for(self.host(name))

    def start_host(self, name: str) -> None:
        host = self.host(name)
        hosts = self.folder / f"hosts.{name}"
        hosts.write_text(self.hosts_lines.get(name) or (self.folder / "etc_hosts").read_text())
        config = self.folder / f"sshd.{name}"
        config.write_text(
            CONFIG.format(address=host.address, folder=self.folder, path=ROOT / "src", env=self.env.get(name, ""))
        )
        script = START.format(
            etc_hosts=hosts, shm=self.shm[name], name=name, extra=self.extra.get(name, ""), config=config
        )
        self.daemons[name] = subprocess.Popen(
            [*self._group(name), "ip", "netns", "exec", host.namespace, "unshare", "--mount", "--uts", "--pid",
             "--fork", "--kill-child", "--mount-proc", "sh", "-c", script],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=(self.folder / f"log.{name}").open("wb"),
            env={**os.environ, FOLDER: str(self.folder)}, start_new_session=True,
        )  # fmt: skip

    def _group(self, name: str) -> list[str]:
        """What puts the host into a control group of its own, where it is to be throttled."""
        if name not in self.throttled:
            return []
        group = Path("/sys/fs/cgroup/cpu") / f"{self.folder.name}-{name}"
        group.mkdir(exist_ok=True)
        (group / "cpu.cfs_quota_us").write_text(str(int(100_000 * self.throttled[name])))
        return ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]

    def as_new(self, name: str) -> None:
        """Forget what was planted on a host; it must start anew."""
        self.shm[name] = "1g"
        for planted in (self.extra, self.env, self.hosts_lines, self.throttled):
            planted.pop(name, None)

    def stop_host(self, name: str) -> None:
        daemon = self.daemons.pop(name)
        daemon.kill()  # --kill-child ends what runs there
        daemon.wait(10)
        deadline = time.monotonic() + 10  # its sshd must have left the port
        while ip("netns", "pids", self.host(name).namespace).strip() and time.monotonic() < deadline:
            time.sleep(0.05)
        with suppress(OSError):
            (Path("/sys/fs/cgroup/cpu") / f"{self.folder.name}-{name}").rmdir()

    def restart_host(self, name: str) -> None:
        self.stop_host(name)
        self.start_host(name)
        self._wait_for(self.host(name))

    def heal(self) -> None:
        """Take away all that was done to wires and firewalls."""
        for namespace in (self.network.switch, *(h.namespace for h in self.network.hosts)):
            inside(namespace, "nft", "flush", "ruleset")
        for host in self.network.hosts:
            for namespace, device in ((host.namespace, "eth0"), (self.network.switch, host.port)):
                with suppress(LabError):
                    command("tc", "-n", namespace, "qdisc", "del", "dev", device, "root")

    def _wait_for(self, host: Host) -> None:
        probe = f"import socket; socket.create_connection(('{host.address}', 22), 1)"
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            done = self.inside("login", sys.executable, "-S", "-c", probe, check=False)
            if done.returncode == 0:
                return
            assert self.daemons[host.name].poll() is None, (self.folder / f"log.{host.name}").read_text()
            time.sleep(0.05)
        raise AssertionError(f"no sshd on {host.name}")

    def inside(
        self, name: str, *words: str, check: bool = True, limit_s: float = 170, cwd: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A command with the network and the hosts file of a host."""
        hosts = self.folder / f"hosts.{name}"
        hosts = hosts if hosts.exists() else self.folder / "etc_hosts"
        script = f"mount --make-rprivate / && mount --bind {hosts} /etc/hosts"
        return subprocess.run(
            ["ip", "netns", "exec", self.host(name).namespace, "unshare", "--mount", "sh", "-c",
             f'{script} && exec "$@"', "sh", *words],
            capture_output=True, text=True, timeout=limit_s, check=check, cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "ignore"},
        )  # fmt: skip

    def whichrank(self, *words: str, limit_s: float = 170) -> subprocess.CompletedProcess[str]:
        return self.inside(
            "login", sys.executable, "-m", "whichrank", *words, "--hosts", ",".join(self.names),
            "--ssh", f"ssh -F {self.folder / 'ssh_config'}", check=False, limit_s=limit_s,
        )  # fmt: skip

    def __exit__(self, *_: object) -> None:
        for daemon in self.daemons.values():
            daemon.kill()  # --kill-child ends what runs there
        for daemon in self.daemons.values():
            daemon.wait(10)
        self.network.down()
        place.tidy(self.folder)
