"""Nodes with sshd in network namespaces, and a job that hangs on some of them without anybody having prepared it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.preflight.cluster import ROOT, Cluster

SCRIPT = Path(__file__).with_name("hung_job.py")
PORT = 29_611

# /tmp, /var/tmp and /dev/shm without a free byte; what sshd and the job need of /tmp stays.
_FULL_DISK = """
mkdir -p /mnt/kept /mnt/code && mount --bind {folder} /mnt/kept && mount --bind {code} /mnt/code
for place in /tmp /var/tmp; do mount -t tmpfs -o size=64k tmpfs $place; done
mkdir -p {folder} {code} && mount --bind /mnt/kept {folder} && mount --bind /mnt/code {code}
for place in /tmp /var/tmp /dev/shm; do head -c 1M /dev/zero > $place/full 2>/dev/null || true; done
"""
# Every Python of the system, and whatever a home folder holds.
NO_PYTHON = """
for program in /usr/bin/python3.* /usr/local/bin/python3*; do mount --bind /dev/null $program || true; done
mount -t tmpfs tmpfs /root
"""


def full_disk(cluster: Cluster) -> str:
    return _FULL_DISK.format(folder=cluster.folder, code=ROOT)


def start_job(cluster: Cluster, names: Sequence[str], culprit: int, logs: Path) -> None:
    """One rank on each of these nodes, started by hand over ssh; returns when all have trained and one has stopped."""
    address = cluster.host(names[0]).address
    for rank, name in enumerate(names):
        variables = {
            "RANK": rank, "LOCAL_RANK": 0, "WORLD_SIZE": len(names), "MASTER_ADDR": address, "MASTER_PORT": PORT,
            "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": 1, "API_TOKEN": "hunter2hunter2",
        }  # fmt: skip
        words = " ".join(f"{key}={value}" for key, value in variables.items())
        log = logs / f"log.{rank}"
        command = f"cd /; {words} nohup {sys.executable} {SCRIPT} {culprit} > {log} 2>&1 < /dev/null &"
        cluster.inside("login", "ssh", "-F", str(cluster.folder / "ssh_config"), name, command)
    deadline = time.monotonic() + 120
    while not all("third step" in _text(logs / f"log.{rank}") for rank in range(len(names))):
        assert time.monotonic() < deadline, [_text(logs / f"log.{rank}") for rank in range(len(names))]
        time.sleep(0.2)


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def drop_packets(cluster: Cluster, name: str) -> None:
    """From now on nothing reaches this host."""
    namespace = cluster.host(name).namespace
    rules = "table inet lab {\n chain input { type filter hook input priority 0; policy drop; }\n}\n"
    subprocess.run(["ip", "netns", "exec", namespace, "nft", "-f", "-"], input=rules, text=True, check=True)


def whichrank(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    """The command on the login host."""
    return cluster.inside(
        "login", sys.executable, "-m", "whichrank", *words, "--ssh", f"ssh -F {cluster.folder / 'ssh_config'}",
        check=False, cwd=os.fspath(cluster.folder),
    )  # fmt: skip
