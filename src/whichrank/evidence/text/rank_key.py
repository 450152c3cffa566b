"""The field in which lines of JSON hold the rank, learned from the file where it is not called `rank`."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import lru_cache

RANK_KEYS = ("rank", "global_rank", "RANK")
_OWN_WORDS = ("process_index", "worker_rank", "worker", "worker_id", "proc", "process", "trainer", "replica", "member")
_LEAST, _MOST, _LINES = 2, 4096, 400
"""So many ranks at least and at most; lines that are looked at."""


@lru_cache(maxsize=8)
def learn_key(edges: bytes) -> str | None:
    """The one field of a program's own words whose numbers are 0, 1, 2 … without a gap, in a file without a rank."""
    if not edges.startswith(b"{") and b"\n{" not in edges:
        return None
    numbers: dict[str, set[int]] = defaultdict(set)
    objects = (line for line in edges.split(b"\n") if line.startswith(b"{"))
    for _, line in zip(range(_LINES), objects, strict=False):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if any(key in record for key in RANK_KEYS):
            return None
        for word in _OWN_WORDS:
            if type(record.get(word)) is int:
                numbers[word].add(record[word])
    dense = [word for word, found in numbers.items() if _are_ranks(found)]
    return dense[0] if len(dense) == 1 else None


def _are_ranks(numbers: set[int]) -> bool:
    return _LEAST <= len(numbers) <= _MOST and numbers == set(range(len(numbers)))
