"""Two kinds of runs that took turns: what they differ by, and how sure that is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

T_95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20)
"""Student's t for 95 %, from one degree of freedom on."""


def difference(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """The mean of the paired differences, and half the width of its 95 % interval."""
    apart = [x - y for x, y in zip(a, b, strict=True)]
    t = T_95[len(apart) - 2] if len(apart) - 2 < len(T_95) else 2.1
    return statistics.mean(apart), t * statistics.stdev(apart) / len(apart) ** 0.5


def usual_difference(a: Sequence[float], b: Sequence[float]) -> tuple[float, float, float]:
    """The median of the paired differences, and the ends of its 95 % interval by their order alone.

    A few pairs that something else disturbed move it little. Needs six pairs at least.
    """
    apart = sorted(x - y for x, y in zip(a, b, strict=True))
    count = len(apart)
    below = [sum(math.comb(count, k) for k in range(rank + 1)) / 2**count for rank in range(count)]
    outside = max(sum(chance <= 0.025 for chance in below) - 1, 0)
    return statistics.median(apart), apart[outside], apart[-1 - outside]
