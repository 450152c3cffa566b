"""Ranks would run on CPUs of another socket than their GPUs.

What it finds: GPUs whose NUMA node has no CPU that a process started here may use.

Why it happens: a launcher or a container gives CPUs of one socket only. Copies to the GPU then cross the sockets:
10-30 % slower staging.

How it decides: NUMA node of each GPU on the PCIe bus against the affinity mask.

Example: `GPU 0000:b5:00.0 is on node 1, only CPUs 0-31 (node 0) are allowed`

Fix: allow CPUs of all sockets and bind each rank to its GPU's node (numactl, --cpu-bind).

Limits: node -1 (virtual machines) means that the firmware does not tell: nothing is judged then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichrank.model.preflight import Check, Launch, healthy, unhealthy, unknown
from whichrank.records.inspection import HostProbes, items, number, text

CODE = "PREH111"
CAUSE = "cpu-starved"
CHECK = "numa"
PROBE = "pci"
FIX = ("Allow CPUs of every socket that has a GPU, and bind each rank to the node of its GPU.",)


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check | None:  # noqa: ARG001
    gpus = [d for d in items(values, "devices") if d.get("kind") == "gpu"]
    if not gpus:
        return None
    cpu = host.values("cpu") or {}
    nodes: Mapping[str, Any] = cpu.get("nodes") or {}
    allowed = set(_expand(text(cpu, "allowed")))
    placed = [(d, number(d, "numa_node")) for d in gpus]
    if not allowed or all(node is None or node < 0 for _, node in placed):
        return unknown("the firmware does not say which NUMA node a GPU belongs to")
    for device, node in placed:
        own = set(_expand(str(nodes.get(f"{node:.0f}", "")))) if node is not None and node >= 0 else set()
        if own and not own & allowed:
            words = f"GPU {device.get('address')} is on node {node:.0f}, only CPUs {text(cpu, 'allowed')} are allowed"
            return unhealthy(text(cpu, "allowed"), words, severity="warning")
    return healthy("CPUs beside every GPU")


def _expand(words: str) -> list[int]:
    found: list[int] = []
    for part in words.split(","):
        first, _, last = part.partition("-")
        if first.strip().isdigit() and (not last or last.strip().isdigit()):
            found += range(int(first), min(int(last or first), int(first) + 8192) + 1)
    return found
