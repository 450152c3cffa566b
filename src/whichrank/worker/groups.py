"""The process groups of this process and who is in them: Gloo's recorder does not say it.

Copied into the job beside `startup.py`: standard library only, torch is looked at and never changed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

MARK = "whichrank_groups"


def own() -> str:
    """The groups by name as JSON, members as ranges; "" where there is no group."""
    world = _world()
    default = getattr(world, "default_pg", None)
    if default is None:
        return ""
    groups = {name: ranges(world.pg_group_ranks.get(group, ())) for group, name in list(world.pg_names.items())}
    return json.dumps({MARK: 1, "rank": default.rank(), "groups": groups})


def own_rank() -> int | None:
    """Its rank; None where there is no group."""
    default = getattr(_world(), "default_pg", None)
    return None if default is None else int(default.rank())


def _world() -> Any:
    return getattr(sys.modules.get("torch.distributed.distributed_c10d"), "_world", None)


def ranges(ranks: Iterable[int]) -> str:
    """`0-3,8`"""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and spans[-1][1] == rank - 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in spans)
