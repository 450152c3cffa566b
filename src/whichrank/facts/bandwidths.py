"""How fast collectives are on known hardware, from published measurements."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import NamedTuple

_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SIZE = re.compile(r"^(\d+)(KiB|MiB|GiB)$")
_MODEL = re.compile(r"\b(GB200|B300|B200|H200|H100|A100|V100)\b")


class Measured(NamedTuple):
    """One published row: bus bandwidth in GB/s at a size."""

    gpu: str
    nodes: int
    ranks: int
    operation: str
    size: int
    busbw: float
    source: str


@cache
def measured() -> tuple[Measured, ...]:
    """The rows that state a size and were measured, smallest size first."""
    from whichrank.facts.environment import rows

    found = []
    for row in rows("bandwidth.csv"):
        size = _SIZE.match(row["size"])
        plain = row["kind"] == "measured" and size and row["nodes"].isdecimal() and row["ranks"].isdecimal()
        if plain and size and row["busbw_GBps"] and "NCCL_NVLS_ENABLE=0" not in row["algorithm"]:
            count = int(size[1]) * _UNITS[size[2]]
            key = row["gpu"], int(row["nodes"]), int(row["ranks"]), row["operation"]
            found.append(Measured(*key, count, float(row["busbw_GBps"]), row["source"]))
    return tuple(sorted(found, key=lambda row: row.size))


def expected(accelerator: str, operation: str, ranks: int, nodes: int, size: int) -> Measured | None:
    """What is usual for this many ranks of this device at this size; None where nobody has published it."""
    model = _MODEL.search(accelerator)
    if model is None or "PCIe" in accelerator:
        return None
    same = [
        r for r in measured()
        if (r.gpu, r.nodes, r.ranks, r.operation) == (model[1], nodes, ranks, operation)
    ]  # fmt: skip
    if not same or size < same[0].size:
        return None
    below = [row for row in same if row.size <= size][-1]
    above = next((row for row in same if row.size > size), below)
    if above is below:
        return below._replace(size=size)
    part = (math.log(size) - math.log(below.size)) / (math.log(above.size) - math.log(below.size))
    return below._replace(size=size, busbw=below.busbw + part * (above.busbw - below.busbw))


def bus_factor(operation: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth (nccl-tests doc/PERFORMANCE.md)."""
    if operation == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (
        (ranks - 1) / ranks if operation in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter") else 1.0
    )
