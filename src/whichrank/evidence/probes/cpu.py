"""CPUs: how many there are, how many a rank may use, NUMA nodes, frequency governor."""

from __future__ import annotations

import os
import re
from typing import Any

from whichrank.evidence.probes import Place

NAME = "cpu"
LIMIT_S = 10.0


def measure(place: Place) -> dict[str, Any]:
    """Counts, the NUMA nodes with their CPUs, and the load."""
    online = place.read("/sys/devices/system/cpu/online") or ""
    status = place.read("/proc/self/status") or ""
    allowed = re.search(r"^Cpus_allowed_list:\s*(\S+)", status, re.MULTILINE)
    nodes = {
        node.name.removeprefix("node"): place.read(f"/sys/devices/system/node/{node.name}/cpulist") or ""
        for node in place.entries("/sys/devices/system/node") if re.fullmatch(r"node\d+", node.name)
    }  # fmt: skip
    load = (place.read("/proc/loadavg") or "").split()[:1]
    model = re.search(r"^model name\s*: (.*)", place.read("/proc/cpuinfo") or "", re.MULTILINE)
    return {
        "online": len(expand(online)) or os.cpu_count(),
        "allowed": allowed[1] if allowed else online,
        "allowed_count": len(expand(allowed[1] if allowed else online)),
        "nodes": nodes,
        "governor": place.read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "load": float(load[0]) if load else None,
        "model": model[1] if model else None,
        "omp_threads": place.environ.get("OMP_NUM_THREADS"),
    }


def expand(words: str) -> list[int]:
    """`0-3,8` as numbers."""
    found: list[int] = []
    for part in words.split(","):
        first, _, last = part.partition("-")
        if first.strip().isdigit():
            found += range(int(first), min(int(last or first), int(first) + 8192) + 1)
    return found
