"""What NCCL's own lines say of ranks: by the prefixes before them, and by the sizes of communicators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whichrank.records.nccl import NcclProcess


def joined_by_smaller_ones(nccl: Sequence[NcclProcess], size: int) -> bool:
    """Whether there are several communicators of this size, and a smaller one has members of two of them: they are
    columns of a mesh, and not the whole job in two attempts."""
    of_size: dict[tuple[str | None, int | None], str] = {}
    smaller: dict[str, set[tuple[str | None, int | None]]] = {}
    for process in nccl:
        for init in process.inits:
            if init.comm_id is None:
                continue
            if init.nranks == size:
                of_size.setdefault((process.host, process.pid), init.comm_id)
            elif init.nranks < size:
                smaller.setdefault(init.comm_id, set()).add((process.host, process.pid))
    return any(len({of_size[p] for p in members if p in of_size}) > 1 for members in smaller.values())


def stated_ranks(nccl: Sequence[NcclProcess]) -> dict[int, NcclProcess]:
    """Ranks by the launcher's prefixes: each stands before the lines of one process, and none contradicts NCCL."""
    found: dict[int, NcclProcess] = {}
    for process in nccl:
        if process.stated_rank is None or process.pid is None:
            continue
        other = found.setdefault(process.stated_rank, process)
        of_world = {init.rank for init in process.inits if init.nranks > process.stated_rank}
        if other.label != process.label or (of_world and process.stated_rank not in of_world):
            return {}
    return found if len(found) > 1 else {}
