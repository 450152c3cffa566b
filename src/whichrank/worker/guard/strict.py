"""Before each collective all members of the group say what they are about to bring; a difference stops it there."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from torch.distributed import distributed_c10d as c10d

from whichrank.worker.guard.collectives import Collectives, RefusedError

PATIENCE_S = 600.0
"""For the slowest member; a collective itself would wait as long."""


class Strict:
    """Meets the other members in the job's store, under keys of its own; never on the job's groups."""

    def __init__(self, rank: int, collectives: Collectives) -> None:
        self.rank, self.collectives = rank, collectives
        store = c10d._get_default_store()  # noqa: SLF001 - the one store that all ranks share
        clone = getattr(store, "clone", None)
        self.store = c10d.PrefixStore("whichrank_guard", clone() if clone is not None else store)
        self.members: dict[str, list[int]] = {}

    def agree(self, group: str, number: int, signature: str, members: list[int]) -> None:
        """Raise on every member where they differ."""
        if len(members) < 2:
            return
        key = f"{group}/{number}"
        self.store.set(f"{key}/{self.rank}", f"{signature} {self.collectives.text(signature)}")
        keys = [f"{key}/{rank}" for rank in members]
        self.store.wait(keys, timedelta(seconds=PATIENCE_S))
        said = [bytes(value).decode("ascii", "replace") for value in self.store.multi_get(keys)]
        if number > 1:  # everybody has been past this one: nobody asks for the one before
            self.store.delete_key(f"{group}/{number - 2}/{self.rank}")
        if len(set(said)) > 1:
            raise RefusedError(self._told(group, number, dict(zip(members, said))))  # noqa: B905

    def _told(self, group: str, number: int, said: dict[int, str]) -> str:
        counts: dict[str, list[int]] = {}
        for rank, signature in said.items():
            counts.setdefault(signature, []).append(rank)
        sides = "; ".join(
            f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:8]))}: {signature.partition(' ')[2]}"
            for signature, ranks in sorted(counts.items(), key=lambda side: len(side[1]))
        )
        return f"whichrank guard: ranks do not agree on call {number} of group {group}: {sides}"


def of(rank: int, collectives: Collectives) -> Any:
    return Strict(rank, collectives).agree
