"""A Ray cluster on hosts of network namespaces: a head on the first, a node on the second, a token of its own."""

from __future__ import annotations

import secrets
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.preflight.cluster import Cluster

_PORT = 6379


class RayCluster:
    """Two hosts with sshd; commands run on the first, as Ray wants its drivers on a node of the cluster."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.address = f"{cluster.host('node1').address}:{_PORT}"
        token = folder / "token"
        token.write_text(secrets.token_hex(32))
        token.chmod(0o600)
        # Without a token said here one found in the user's home would decide; a busy machine takes longer to start.
        self.environment = {
            "HOME": str(folder), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0", "RAY_agent_register_timeout_ms": "180000", "PYTHONWARNINGS": "ignore",
            "PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
        }  # fmt: skip

    def command(self, host: str, *words: object, **more: str) -> list[str]:
        given = [f"{name}={value}" for name, value in {**self.environment, **more}.items()]
        ssh = ["ssh", "-F", str(self.cluster.folder / "ssh_config"), self.cluster.host(host).address]
        return [
            "ip", "netns", "exec", self.cluster.host("login").namespace, *ssh,
            shlex.join(["env", *given, *map(str, words)]),
        ]  # fmt: skip

    def run(self, host: str, *words: object, timeout: float = 200) -> subprocess.CompletedProcess[str]:
        command = self.command(host, *words)
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)

    def whichrank(self, *words: object) -> subprocess.CompletedProcess[str]:
        return self.run("node1", sys.executable, "-m", "whichrank", *words)

    def start(self, folder: Path) -> None:
        common = ("--num-cpus=1", "--object-store-memory=80000000", "--disable-usage-stats")
        head = ("--head", f"--port={_PORT}", "--include-dashboard=false", f"--temp-dir={folder / 'r'}")
        for name, words in (("node1", head), ("node2", (f"--address={self.address}",))):
            own = f"--node-ip-address={self.cluster.host(name).address}"
            done = self.run(name, sys.executable, "-m", "ray.scripts.scripts", "start", own, *words, *common)
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@contextmanager
def ray_cluster() -> Iterator[RayCluster]:
    """Whatever runs on the hosts ends with them: they have process namespaces of their own."""
    with tempfile.TemporaryDirectory(prefix="wr") as short, Cluster(2) as hosts:
        hosts.start()
        made = RayCluster(hosts, Path(short))
        made.start(Path(short))  # sockets lie below it: their paths must stay short
        yield made
