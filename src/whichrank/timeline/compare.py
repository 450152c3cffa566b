"""How one rank's operations in a group differ from another's, from the first difference on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from whichrank.records.dump import Call, Frame
from whichrank.timeline.lineup import Lineup
from whichrank.timeline.program import CONTEXTS, TAIL, Label, Programs, is_library, place_of
from whichrank.timeline.signature import differs_in

Difference = Literal["skipped", "added", "swapped", "size", "dtype", "root", "reduce-op", "unclear"]
WINDOW = 8


def rows_in_group(lineup: Lineup, rank: int, group: int) -> list[int]:
    """A rank's collectives in one group, in the order of issue."""
    return [r for r in lineup.rows(rank) if lineup.group[r] == group and not lineup.p2p[r]]


def going_on(history: Sequence[Label], count: int) -> list[Label]:
    """How a sequence goes on, by what followed the longest earlier occurrence of its ending."""
    going = list(history)
    for _ in range(count):
        for length in CONTEXTS:
            ending = going[-length:]
            if len(going) <= length:
                continue
            place = next((i for i in range(len(going) - length - 1, -1, -1) if going[i : i + length] == ending), None)
            if place is not None:
                going.append(going[place + length])
                break
        else:
            break
    return going[len(history) :]


def compare(programs: Programs, group: int, seq: int, odd: int, normal: int) -> tuple[Difference, int | None, bool]:
    """What `odd` did differently from `normal` at `seq` of `group`.

    Returns the difference, the row of `odd` that shows it, and whether the operation that `normal`
    issued there had been issued before (so that the loop is known).
    """
    lineup = programs.lineup
    odd_rows, normal_rows = rows_in_group(lineup, odd, group), rows_in_group(lineup, normal, group)
    mine = [r for r in odd_rows if lineup.seq[r] >= seq][: WINDOW * 2]
    theirs = [r for r in normal_rows if lineup.seq[r] >= seq][: WINDOW * 2]
    if not mine or not theirs:
        return "unclear", mine[0] if mine else None, True
    history = [programs.label(r) for r in normal_rows if lineup.seq[r] < seq][-TAIL:]
    past = set(history) | {programs.label(r) for r in odd_rows if lineup.seq[r] < seq}
    m, t = [programs.label(r) for r in mine], [programs.label(r) for r in theirs]
    path = t + going_on(history + t, WINDOW)
    known = t[0] in past
    return _difference(lineup, mine, theirs, m, path, t, past), mine[0], known


def _difference(
    lineup: Lineup,
    mine: list[int],
    theirs: list[int],
    m: list[Label],
    path: list[Label],
    t: list[Label],
    past: set[Label],
) -> Difference:
    aspect = differs_in(lineup.signature_of(mine[0]), lineup.signature_of(theirs[0]))
    same_line = _same_line(lineup.call_of(mine[0]), lineup.call_of(theirs[0]))
    if _permuted(m, t):
        return "swapped"
    if m[0] in path[1 : WINDOW + 1]:
        behind = path[path.index(m[0], 1) :]
        seen = min(len(m), len(behind), WINDOW)
        if m[:seen] == behind[:seen]:
            return "skipped"
    if aspect == "root" or aspect == "reduce-op":
        return aspect
    if aspect in ("size", "dtype") and m[1:3] == t[1:3] and len(m[1:3]) == 2:
        return "dtype" if aspect == "dtype" else "size"
    if aspect in ("size", "dtype") and (same_line or m[1:2] == t[1:2] != []) and m[0] not in past:
        return "dtype" if aspect == "dtype" else "size"
    if t[0] in m[1 : WINDOW + 1]:
        return "added"
    if aspect == "dtype" and m[0] not in past:
        return "dtype"
    if m[0] in past:
        return "skipped"
    if t[0] in past:
        return "size" if aspect == "size" and not _places_differ(lineup, mine[0], theirs[0]) else "added"
    if aspect == "op":
        return "swapped" if _same_function(lineup, mine[0], theirs[0]) else "added"
    return "unclear"


def _permuted(mine: Sequence[Label], theirs: Sequence[Label]) -> bool:
    """The same few operations in another order, and the same again behind them.

    A rank that skipped one operation of a loop also shows a permutation, but stays shifted behind it.
    """
    for width in range(2, min(len(mine), len(theirs), WINDOW) + 1):
        if sorted(mine[:width]) == sorted(theirs[:width]):
            seen = min(len(mine), len(theirs))
            return list(mine[width:seen]) == list(theirs[width:seen])
    return False


def _same_line(one: Call, other: Call) -> bool:
    a, b = place_of(one), place_of(other)
    return a is not None and b is not None and (a.file, a.line) == (b.file, b.line)


def _places_differ(lineup: Lineup, one: int, other: int) -> bool:
    a, b = place_of(lineup.call_of(one)), place_of(lineup.call_of(other))
    if a is None or b is None:
        return (a is None) != (b is None)
    return (a.file, a.line) != (b.file, b.line)


def _same_function(lineup: Lineup, one: int, other: int) -> bool:
    """Two operations of which nobody has seen either before are taken for neighbours only if they stand close."""
    a, b = place_of(lineup.call_of(one)), place_of(lineup.call_of(other))
    return a is not None and b is not None and (a.file, a.function) == (b.file, b.function)


def is_behind_loop(call: Call, loop: Sequence[Call]) -> bool:
    """Whether a call stands in the code behind the lines that the loop's calls came from.

    Both stacks share the function that contains the loop; there the call's line is below all of theirs.
    """
    outer = _outermost_first(call)
    stacks = [_outermost_first(other) for other in loop if other.stack]
    if not outer or not stacks:
        return False
    for depth, frame in enumerate(outer):
        peers = [
            s[depth]
            for s in stacks
            if len(s) > depth and (s[depth].file, s[depth].function) == (frame.file, frame.function)
        ]
        if not peers:
            return False
        if all(peer.line != frame.line for peer in peers):
            return frame.line > max(peer.line for peer in peers)
    return False


def _outermost_first(call: Call) -> list[Frame]:
    return [frame for frame in reversed(call.stack) if not is_library(frame)]
