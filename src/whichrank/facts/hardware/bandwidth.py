"""How fast collectives are: the formulas of nccl-tests, and what known machines reach.

Formulas: NVIDIA/nccl-tests v2.19.6, src/*.cu `GetBw` and doc/PERFORMANCE.md.
"""

from __future__ import annotations

import re
from functools import cache
from math import log
from typing import NamedTuple

from whichrank.facts.tables import rows

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv", "barrier")
_TWICE, _SHARE, _WHOLE = "2(n-1)/n", "(n-1)/n", "1"
FACTORS = {
    "all_reduce": _TWICE, "all_gather": _SHARE, "reduce_scatter": _SHARE, "all_to_all": _SHARE, "alltoall": _SHARE,
    "alltoallv": _SHARE, "gather": _SHARE, "scatter": _SHARE, "broadcast": _WHOLE, "reduce": _WHOLE, "sendrecv": _WHOLE,
    "send_recv": _WHOLE, "hypercube": _WHOLE,
}  # fmt: skip
"""Operation -> the factor from algorithm bandwidth to bus bandwidth; n is the number of ranks."""
_SIZE = re.compile(r"(\d+) ?(K|M|G)i?B?$")
_UNITS = {"K": 10, "M": 20, "G": 30}


def bus_factor(operation: str, ranks: int) -> float | None:
    """What the algorithm bandwidth is multiplied by; None where bandwidth has no meaning (barrier)."""
    factor = FACTORS.get(operation)
    if factor is None or ranks < 1:
        return None
    return {_TWICE: 2 * (ranks - 1) / ranks, _SHARE: (ranks - 1) / ranks, _WHOLE: 1.0}[factor]


def bandwidths(operation: str, octets: int, seconds: float, ranks: int) -> tuple[float | None, float | None]:
    """Algorithm and bus bandwidth in GB/s (10^9 bytes). `octets` as nccl-tests prints the size: the whole array."""
    factor = bus_factor(operation, ranks)
    if factor is None or seconds <= 0 or not octets:
        return None, None
    algorithm = octets / 1e9 / seconds
    return algorithm, algorithm * factor


class Known(NamedTuple):
    """One measured point of a machine."""

    platform: str
    gpu: str
    nodes: int
    ranks: int
    operation: str
    octets: int
    busbw: float
    algorithm: str
    source: str


class Expectation(NamedTuple):
    busbw: float
    platform: str
    source: str


class Nvls(NamedTuple):
    """In-switch reduction of a GPU: what all_reduce gives with it and without it."""

    gpu: str
    least_ranks: int
    ring: float
    low: float
    high: float
    source: str


@cache
def known() -> tuple[Known, ...]:
    """Measured points with all numbers given; what was measured with NVLS switched off is left out."""
    found = []
    for row in rows("hardware/bandwidth.csv"):
        octets = _octets(row["size"])
        off = "NVLS off" in row["algorithm"] or "NVLS_ENABLE=0" in row["algorithm"]
        if row["kind"] == "measured" and octets and row["nodes"].isdigit() and row["ranks"].isdigit() and not off:
            found.append(
                Known(row["platform"], row["gpu"], int(row["nodes"]), int(row["ranks"]), row["operation"], octets,
                      float(row["busbw_GBps"]), row["algorithm"], row["source"])
            )  # fmt: skip
    return tuple(found)


@cache
def nvls() -> dict[str, Nvls]:
    return {
        row["gpu"]: Nvls(row["gpu"], int(row["least_ranks"]), float(row["ring_GBps"]), float(row["nvls_low_GBps"]),
                         float(row["nvls_high_GBps"]), row["source"])
        for row in rows("hardware/nvls.csv")
    }  # fmt: skip


def family(device: str) -> str | None:
    """`H100` for "NVIDIA H100 80GB HBM3"; None for boards without NVSwitch, of which the tables don't speak."""
    if "PCIe" in device or "NVL" in device.split():
        return None
    found = re.search(r"\b(V100|A100|H100|H200|B200|B300|GB200)\b", device)
    if found is None or (found[1] == "H100" and "HBM3" not in device and "SXM" not in device):
        return None
    return found[1]


def expected(device: str, nodes: int, ranks: int, operation: str, octets: int) -> Expectation | None:
    """What a known machine of this kind reached, between two sizes on a logarithmic scale; None where none is known."""
    gpu = family(device)
    points = sorted(
        (p for p in known() if p.gpu == gpu and p.nodes == nodes and p.ranks == ranks and p.operation == operation),
        key=lambda p: p.octets,
    )
    if not points or octets < points[0].octets:
        return None
    below = [p for p in points if p.octets <= octets][-1]
    above = next((p for p in points if p.octets > octets), None)
    if above is None:
        return Expectation(below.busbw, below.platform, below.source)
    share = log(octets / below.octets) / log(above.octets / below.octets)
    return Expectation(below.busbw + share * (above.busbw - below.busbw), below.platform, below.source)


def _octets(text: str) -> int | None:
    found = _SIZE.match(text.strip())
    return int(found[1]) << _UNITS[found[2]] if found else None
