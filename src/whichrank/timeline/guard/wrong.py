"""What a comparison has found, before any rule makes a finding of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from msgspec import Struct, field

from whichrank.model.evidence import Ref

Kind = Literal[
    "replica",
    "adrift",
    "rate",
    "setting",
    "start",
    "nan",
    "outlier",
    "batch",
    "sampler",
    "signature",
    "launch",
    "resume",
    "random",
]


class Wrong(Struct):
    """Ranks that differ where they should not."""

    kind: Kind
    step: int
    """The first step at which it was seen."""
    odd: tuple[int, ...]
    """The ranks that differ from the majority; empty where there is none."""
    among: tuple[int, ...]
    """All ranks that were compared."""
    module: str = ""
    tensor: str = ""
    """"parameter", a key of the optimizer's state, "gradient", "loss"…"""
    good: int | None = None
    """The last step at which the same was equal on all of them; None where it never was."""
    values: dict[int, str] = field(default_factory=dict)
    refs: list[Ref] = field(default_factory=list)
    detail: dict[str, Any] = field(default_factory=dict)
    learned: bool = False
    """That they should be equal was learned from earlier steps, not told by torch."""
    others: int = 0
    """How many further tensors differ in the same way."""

    @property
    def pair(self) -> tuple[int, ...]:
        """The ranks of which one is meant, where no majority says which."""
        return () if self.odd else self.among


def minority(values: Mapping[int, Any]) -> tuple[int, ...]:
    """Ranks that say something else than most; nobody where no side has more than half."""
    counts = Counter(values.values()).most_common(1)
    if not counts or counts[0][1] * 2 <= len(values):
        return ()
    return tuple(sorted(rank for rank, value in values.items() if value != counts[0][0]))


def ranks_of(text: str) -> tuple[int, ...]:
    """`0-3` and `0,2` as ranks; nothing for anything else."""
    first, dash, last = text.partition("-")
    if dash and first.isdecimal() and last.isdecimal() and int(last) - int(first) < 1 << 20:
        return tuple(range(int(first), int(last) + 1))
    parts = text.split(",")
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else ()


def classes(values: Mapping[int, Any]) -> frozenset[frozenset[int]]:
    """Ranks together that say the same."""
    sides: dict[Any, set[int]] = {}
    for rank, value in values.items():
        sides.setdefault(value, set()).add(rank)
    return frozenset(frozenset(side) for side in sides.values())


def spread(refs: Iterable[Ref], odd: tuple[int, ...], most: int = 4) -> list[Ref]:
    """Quotes of the odd ranks first."""
    return sorted(refs, key=lambda ref: (ref.rank not in odd, ref.rank if ref.rank is not None else -1))[:most]
