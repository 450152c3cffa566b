"""The report of Horovod's stall inspector: which ranks did not bring a tensor that others wait with."""

from __future__ import annotations

import re

from msgspec import Struct, field

from whichrank.evidence.readers.torch_output.found import number_list
from whichrank.records.events.collectives import StallReport

WORDS = ("broadcasted by subset of ranks", "Stalled ops:")
"""How it begins, and where only its list was kept."""
# Old versions print per tensor who is ready, later ones who is missing; since 0.16 per rank what it is missing from.
_PER_TENSOR = re.compile(r"\[(ready|missing) ranks:([\d, ]{0,4000})\]")
_PER_RANK = re.compile(r"^\s{0,8}(\d{1,7})!?: \[(.{1,8000})")
_HEADER = re.compile(r"^\s{0,8}(?:Stalled ops|Stalled ranks|Missing ranks):|^\s*$")
_MOST = 65536


class Stall(Struct):
    """The report in the making: one line or several."""

    line: int
    bringing: list[set[int]] = field(default_factory=list)
    """Per tensor, who brought it."""
    lacking: list[set[int]] = field(default_factory=list)
    """Per tensor, who is missing."""
    tensors: dict[int, frozenset[str]] = field(default_factory=dict)
    """Per rank that is missing, what it did not bring."""

    def feed(self, text: str) -> bool:
        """False when the report is over."""
        told = list(_PER_TENSOR.finditer(text))
        for tensor in told:
            numbers = set(number_list(tensor[2]))
            sides = self.bringing if tensor[1] == "ready" else self.lacking
            if len(sides) < _MOST:
                sides.append(numbers)
        if told:
            return True
        match = _PER_RANK.match(text)
        if match is not None and len(self.tensors) < _MOST:
            self.tensors[int(match[1])] = frozenset(match[2].rstrip("]. ").split(", "))
            return True
        return _HEADER.match(text) is not None

    def event(self) -> StallReport:
        """`missing` lack every tensor of the report, `some` only some; `ready` brought one; `apart` are the odd."""
        lacking = self.lacking
        if self.tensors:
            names = frozenset().union(*self.tensors.values())
            lacking = [{rank for rank, missed in self.tensors.items() if name in missed} for name in sorted(names)]
        missing = set.intersection(*lacking) if lacking else set()
        some = set().union(*lacking) - missing
        ready = set().union(*self.bringing)
        apart = _fewer(lacking or self.bringing)
        return StallReport(
            missing=tuple(sorted(missing)), some=tuple(sorted(some)), ready=tuple(sorted(ready)), apart=apart
        )


def _fewer(sides: list[set[int]]) -> tuple[int, ...]:
    """The smaller of two groups that share no rank, where every tensor is of one of the two."""
    groups = sorted({frozenset(side) for side in sides if side}, key=len)
    if len(groups) != 2 or len(groups[0]) == len(groups[1]) or groups[0] & groups[1]:
        return ()
    return tuple(sorted(groups[0]))


def begins(line: int, text: str, *, opened: bool) -> Stall | None:
    """The report that begins in this line; in old versions it ends there too. In an open one the list has a title."""
    at = next((text.index(words) for words in WORDS[: 1 if opened else 2] if words in text), None)
    if at is None:
        return None
    stall = Stall(line)
    stall.feed(text[at:])
    return stall
