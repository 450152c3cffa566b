"""Where nothing says that a job is wrong: values that were the same on all ranks, until one rank said another one.

Losses differ between ranks. What changes at every round and is the same on all of them to the last digit belongs to
the replica: the norm of the weights, a counter of tokens, the scale of the losses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

import numpy as np

from whichrank.flows.diagnose.spoken_lines import Line, SpokenLines
from whichrank.model.contracts import Item
from whichrank.model.evidence import Ref
from whichrank.records.second_looks import PartedValue
from whichrank.timeline.case import Case

_FRACTION = re.compile(
    r"(?<![\w.])(?:(?P<name>[A-Za-z][\w./-]{0,40})[\"']?\s?[=:]?\s?)?(?P<value>-?\d{1,12}\.\d{1,15}(?:[eE][-+]?\d{1,3})?)(?![\d.]*[\w:%])"
)
_DIGITS = 4
"""Fewer may be the same by chance."""
_AGREED, _APART = 3, 2
"""Rounds in which all said the same, each time another value, and rounds since then."""
_RANKS = 3
_LARGEST = 16 << 20

Rows = Mapping[object, Sequence[Line]]


def parted_values(items: Iterable[Item], case: Case) -> list[PartedValue]:
    """The values in which one rank, or few, parted from the others, the earliest first."""
    speaking = {int(rank) for progress in case.progress for rank in np.unique(progress.rank) if rank >= 0}
    if len(speaking) < _RANKS:
        return []
    small = [item for item in items if item.size <= _LARGEST]
    spoken = SpokenLines(small, case.people, case.world)
    found = [parted for rows in spoken.rounds.values() for parted in _parted(rows, case)]
    return sorted(found, key=lambda parted: parted.round)


def _parted(rows: Rows, case: Case) -> Iterator[PartedValue]:
    """By the place of each value in lines that all ranks print alike, in their rounds."""
    often = min(map(len, rows.values()))
    if len(rows) < _RANKS or often < _AGREED + _APART:
        return
    told = {rank: [_FRACTION.findall(line.text) for line in lines[:often]] for rank, lines in rows.items()}
    for place in range(min(len(values) for lines in told.values() for values in lines)):
        by_round = [{rank: lines[at][place][1] for rank, lines in told.items()} for at in range(often)]
        agreed = len(list(takewhile(lambda said: len(set(said.values())) == 1, by_round)))
        odd = _odd(by_round[agreed:])
        if (
            not odd
            or _is_shifted(by_round, agreed, odd)
            or not _of_replicas([next(iter(said.values())) for said in by_round[:agreed]])
        ):
            continue
        rank = next(iter(sorted(odd)))
        other = next(one for one in sorted(by_round[0], key=str) if one not in odd)
        name = told[rank][agreed][place][0] or "a value"
        refs = tuple(_ref(rows[one][agreed], case) for one in (rank, other))
        yield PartedValue(tuple(sorted(odd)), name, by_round[agreed][rank], by_round[agreed][other], agreed, refs)


def _odd(later: Sequence[Mapping[object, str]]) -> set[int]:
    """The ranks, fewer than half, that say another value than all others in every round."""
    if len(later) < _APART:
        return set()
    found: list[set[int]] = []
    for said in later:
        values = list(said.values())
        usual = max(set(values), key=values.count)
        found.append({rank for rank, value in said.items() if value != usual and isinstance(rank, int)})
    same = found[0] if all(odd == found[0] for odd in found) else set()
    return same if 2 * len(same) < len(later[0]) else set()


def _is_shifted(by_round: Sequence[Mapping[object, str]], agreed: int, odd: set[int]) -> bool:
    """Whether a rank that left out a line, or printed one more, says what the others say a round later or earlier."""
    return all(
        any(by_round[at][rank] in _beside(by_round, at, odd) for rank in odd) for at in range(agreed, len(by_round) - 1)
    )


def _beside(by_round: Sequence[Mapping[object, str]], at: int, odd: set[int]) -> set[str]:
    """What the others said one round before or after."""
    near = (*by_round[at - 1 : at], *by_round[at + 1 : at + 2])
    return {value for said in near for rank, value in said.items() if rank not in odd}


def _of_replicas(values: Sequence[str]) -> bool:
    """Whether so exact values that changed were the same on all."""
    exact = [value for value in values if sum(map(str.isdigit, value.lstrip("-0."))) >= _DIGITS]
    return len(set(exact)) >= _AGREED


def _ref(line: Line, case: Case) -> Ref:
    rank = line.speaker.name if isinstance(line.speaker.name, int) else None
    return Ref(
        line.source,
        f"line {line.number}",
        line.text.strip()[:300],
        rank,
        case.people.host_of(rank) if rank is not None else None,
    )
