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
        sides: dict[str, list[int]] = {}
        for rank, text in said.items():
            sides.setdefault(text.partition(" ")[2], []).append(rank)
        ordered = sorted(sides, key=lambda text: len(sides[text]))
        fewest, most = ordered[0], ordered[-1]
        odd = f"rank {sides[fewest][0]} differs" if len(sides[fewest]) == 1 < len(sides[most]) else "ranks differ"
        calls = "; ".join(
            f"{_call(text)} on rank{'s' if len(sides[text]) > 1 else ''} {', '.join(map(str, sides[text][:8]))}"
            for text in ordered
        )
        return f"whichrank guard: {odd} in {_aspect(fewest, most)} of call {number} of group {group}: {calls}"


_ASPECTS = ("operation", "reduction", "size", "type", "root")


def _aspect(one: str, other: str) -> str:
    """What differs first of two calls."""
    pairs = zip(_ASPECTS, one.split("|"), other.split("|"))  # noqa: B905 - for any Python that torch runs on
    return next((f"the {aspect}" for aspect, mine, theirs in pairs if mine != theirs), "the call")


def _call(text: str) -> str:
    """`broadcast(4 elements of float32, root 1)`."""
    name, reduction, size, dtype, root = (*text.split("|"), "", "", "", "", "")[:5]
    told = [reduction] if reduction else []
    told += [f"{size} elements of {dtype.rpartition('.')[2]}"] if size.isdecimal() else []
    told += [f"root {root}"] if root.isdecimal() else []
    return f"{name}({', '.join(told)})"


def of(rank: int, collectives: Collectives) -> Any:
    return Strict(rank, collectives).agree
