"""The same piece of work on every host: arithmetic and copies, timed by the wall and by the CPU's own clock."""

from __future__ import annotations

import hashlib
import time
from typing import Any

from whichrank.evidence.probes import Place

NAME = "work"
LIMIT_S = 40.0
LOADS = True
_BLOCK = b"\xa5" * (1 << 20)
_ROUNDS = 12
_LEAST, _ENOUGH_S = 3, 1.5
_HASHES = 48
"""About 30 ms a round on a core of 2023: long against a time slice, short against a quota's period times the rounds."""


def measure(place: Place) -> dict[str, Any]:
    """Seconds of each round by the wall, CPU seconds of all, MB/s of copies, and throttling meanwhile."""
    before = _throttled(place)
    cpu = time.process_time()
    rounds: list[float] = []
    for number in range(_ROUNDS):
        if number >= _LEAST and sum(rounds) > _ENOUGH_S:
            break  # a host that is slow needs no more to show it
        began = time.perf_counter()
        for _ in range(_HASHES):
            hashlib.sha256(_BLOCK).digest()
        rounds.append(time.perf_counter() - began)
    spent = time.process_time() - cpu
    after = _throttled(place)
    return {
        "rounds_s": [round(r, 6) for r in rounds], "cpu_s": round(spent, 6), "copy_mb_s": _copy_speed(),
        "throttled": after - before if before is not None and after is not None else None,
    }  # fmt: skip


def _copy_speed() -> float:
    source = bytearray(64 << 20)
    best = 0.0
    for _ in range(3):
        began = time.perf_counter()
        bytes(source)
        best = max(best, len(source) / 1e6 / (time.perf_counter() - began))
    return round(best, 1)


def _throttled(place: Place) -> int | None:
    from whichrank.evidence.probes import limits

    value = limits.measure(place).get("throttled")
    return value if isinstance(value, int) else None
