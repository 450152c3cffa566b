"""Counts and flags that a few ranks hold otherwise than all others, in a function that they all are in.

Ranks that are to act alike hold the same root, the same number of parts, the same flag. What counts the steps differs
with how far a rank is, and what is computed from the rank differs by intent: both say nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from whichrank.model.evidence import Ref
from whichrank.records.outline import Outline
from whichrank.records.variables import HeldFrame, Variables

_FEWEST = 3
"""Of two ranks that differ nobody knows which is right."""

Value = int | bool


class OddValue(NamedTuple):
    """A variable that most ranks hold alike, and some otherwise."""

    name: str
    frame: HeldFrame
    """Of the first of those."""
    held: dict[int, Value]
    """By the ranks that hold it otherwise."""
    usual: Value
    ref: Ref

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted(self.held))


def odd_values(told: dict[int, Variables], lines: Outline) -> list[OddValue]:
    """All of them, those of outer functions last."""
    return [odd for place, names in _held(told).items() for name in names if (odd := _odd(told, lines, place, name))]


def _held(told: dict[int, Variables]) -> dict[tuple[str, str], list[str]]:
    """The names that frames of a function hold, by file and function."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for held in told.values():
        for frame in held.frames:
            found.setdefault((frame.file, frame.function), {}).update(dict.fromkeys(frame.values))
    return {place: list(names) for place, names in found.items()}


def _odd(told: dict[int, Variables], lines: Outline, place: tuple[str, str], name: str) -> OddValue | None:
    if _differs_by_itself(lines, place[0], name):
        return None
    frames = {rank: frame for rank, held in told.items() if (frame := _frame(held, place, name)) is not None}
    values = {rank: frame.values[name] for rank, frame in frames.items()}
    (usual, often), *_ = Counter(values.values()).most_common(1)
    held = {rank: value for rank, value in sorted(values.items()) if value != usual}
    if len(values) < _FEWEST or not held or 2 * often <= len(values):
        return None
    first = min(held)
    frame = frames[first]
    quote = f"{name} = {held[first]} in {frame.function}"
    return OddValue(name, frame, held, usual, Ref(told[first].source, frame.place, quote, first))


def _differs_by_itself(lines: Outline, file: str, name: str) -> bool:
    """`step`, `self.rank`, `len(losses)`: with how far a rank is, or by intent."""
    plain = name.replace("(", ".").rstrip(")").rpartition(".")[2]
    known = lines.counters.get(file, frozenset()) | lines.roles.get(file, frozenset())
    return plain in known or "rank" in name.lower()


def _frame(held: Variables, place: tuple[str, str], name: str) -> HeldFrame | None:
    """The innermost frame of this function that holds the name."""
    return next((f for f in held.frames if (f.file, f.function) == place and name in f.values), None)


def singled_out(odd: Collection[OddValue], candidates: Collection[int]) -> tuple[tuple[int, ...], list[OddValue]]:
    """Those of the candidates that hold something else than all other ranks, where all that differs says the same.

    A flag of an object is more often what the rank is there for (`stage.first`) than what went wrong."""
    acting = (each for each in odd if not (type(each.usual) is bool and "." in each.name))
    telling = [(of, each) for each in acting if (of := set(each.ranks)) < set(candidates)]
    sides = {frozenset(of) for of, _ in telling}
    if len(sides) != 1:
        return (), []
    return tuple(sorted(sides.pop())), [each for _, each in telling]
