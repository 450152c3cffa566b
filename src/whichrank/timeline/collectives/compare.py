"""How one rank's operations in a group differ from another's, from the first difference on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from whichrank.records.dump import Call, Frame
from whichrank.records.stack import is_user_frame
from whichrank.timeline.collectives.lineup import Lineup
from whichrank.timeline.collectives.passages import CONTEXTS
from whichrank.timeline.collectives.program import TAIL, Label, Programs, place_of
from whichrank.timeline.collectives.signature import Aspect, differs_in

Difference = Literal["skipped", "added", "swapped", "size", "dtype", "root", "reduce-op", "unclear"]
WINDOW = 8
_ROUND = 64
"""Operations of one round that may be in another order: a rank may issue all of them before it waits for one."""
_WHOLE_LOOP = re.compile(r"(?:run_)?(?:train|training|fit|epoch)(?:_(?:loop|model|epochs?|one_epoch|all))?$")
_ARGUMENTS: dict[Aspect, Difference] = {"size": "size", "dtype": "dtype", "root": "root", "reduce-op": "reduce-op"}


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
    mine = [r for r in odd_rows if lineup.seq[r] >= seq][:_ROUND]
    theirs = [r for r in normal_rows if lineup.seq[r] >= seq][:_ROUND]
    if not mine or not theirs:
        return "unclear", mine[0] if mine else None, True
    history = [programs.label(r) for r in normal_rows if lineup.seq[r] < seq][-TAIL:]
    past = set(history) | {programs.label(r) for r in odd_rows if lineup.seq[r] < seq}
    sides = _Sides(
        lineup,
        mine,
        theirs,
        [programs.label(r) for r in mine],
        [programs.label(r) for r in theirs],
        history,
        past,
    )
    return sides.difference(), mine[0], sides.t[0] in past


class _Sides(Struct):
    """What two ranks issued in one group from their first difference on: rows and labels of mine and theirs."""

    lineup: Lineup
    mine: list[int]
    theirs: list[int]
    m: list[Label]
    t: list[Label]
    history: list[Label]
    past: set[Label]

    def difference(self) -> Difference:
        if _permuted(self.m, self.t):
            return "swapped"
        if self._further_on():
            return "skipped"
        return self._other_arguments() or self._other_operation()

    def _further_on(self) -> bool:
        """Mine are the ones that follow later on their path."""
        path = self.t + going_on(self.history + self.t, WINDOW)
        if self.m[0] not in path[1 : WINDOW + 1]:
            return False
        at = path.index(self.m[0], 1)
        behind = path[at:]
        seen = min(len(self.m), len(behind), WINDOW)
        # One call alone, of the same operation in its turn, has another argument rather than left many others out.
        return self.m[:seen] == behind[:seen] and not (seen == 1 < at and self._aspect() in ("root", "reduce-op"))

    def _aspect(self) -> Aspect:
        return differs_in(self.lineup.signature_of(self.mine[0]), self.lineup.signature_of(self.theirs[0]))

    def _other_arguments(self) -> Difference | None:
        """The same call with other arguments: known by its line, or by what both sides issue next."""
        aspect = _ARGUMENTS.get(self._aspect())
        if aspect in (None, "root", "reduce-op"):
            return aspect
        parts = sum(self.lineup.seq[row] == self.lineup.seq[self.mine[0]] for row in self.mine)
        next_mine, next_theirs = self.m[parts : parts + 2], self.t[parts : parts + 2]
        if len(next_mine) == 2 and next_mine == next_theirs:
            return aspect
        close = _same_line(self.lineup, self.mine[0], self.theirs[0]) or next_mine[:1] == next_theirs[:1] != []
        return aspect if close and self.m[0] not in self.past else None

    def _other_operation(self) -> Difference:
        aspect = self._aspect()
        if self.t[0] in self.m[1 : WINDOW + 1]:
            return "added"
        if aspect == "dtype" and self.m[0] not in self.past:
            return "dtype"
        if self.m[0] in self.past:
            return "skipped"
        if self.t[0] in self.past:
            differ = _places_differ(self.lineup, self.mine[0], self.theirs[0])
            return "size" if aspect == "size" and not differ else "added"
        if aspect == "op":
            return "swapped" if _same_function(self.lineup, self.mine[0], self.theirs[0]) else "added"
        return "unclear"


def _permuted(mine: Sequence[Label], theirs: Sequence[Label]) -> bool:
    """The same operations in another order, and the same again behind them.

    A rank that skipped one operation of a loop also shows a permutation, but stays shifted behind it.
    """
    seen = min(len(mine), len(theirs))
    surplus: Counter[Label] = Counter()
    for width in range(1, seen + 1):
        surplus[mine[width - 1]] += 1
        surplus[theirs[width - 1]] -= 1
        if not any(surplus.values()):
            if width > WINDOW:  # nothing, or little, lies behind a long round that would show a shift
                return not _shifted(mine, theirs, seen)
            end = min(seen, 2 * WINDOW)
            return width > 1 and list(mine[width:end]) == list(theirs[width:end])
    return False


def _shifted(mine: Sequence[Label], theirs: Sequence[Label], seen: int) -> bool:
    """Whether one side is only some operations ahead of the other, as after one that it left out."""
    one, other = list(mine[:seen]), list(theirs[:seen])
    return any(one[by:] == other[:-by] or other[by:] == one[:-by] for by in range(1, seen // 2 + 1))


def _same_line(lineup: Lineup, one: int, other: int) -> bool:
    a, b = place_of(lineup.call_of(one)), place_of(lineup.call_of(other))
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
    frame, peers, _ = _parting(call, loop)
    return frame is not None and frame.line > max(peer.line for peer in peers)


def is_behind_training(call: Call, loop: Sequence[Call]) -> bool:
    """Whether it stands behind the call of a function that, by its name, is the whole loop: `train` has returned."""
    _, _, below = _parting(call, loop)
    return bool(below) and all(_WHOLE_LOOP.match(frame.function.rsplit(".", 1)[-1]) for frame in below)


def _parting(call: Call, loop: Sequence[Call]) -> tuple[Frame | None, list[Frame], list[Frame]]:
    """Where a call's stack parts from the loop's: its frame, theirs of the same function, and what those call."""
    stacks = [_outermost_first(other) for other in loop if other.stack]
    for depth, frame in enumerate(_outermost_first(call)):
        place = (frame.file, frame.function)
        same = [s for s in stacks if len(s) > depth and (s[depth].file, s[depth].function) == place]
        if not same:
            break
        if all(s[depth].line != frame.line for s in same):
            below = [s[depth + 1] for s in same if len(s) > depth + 1]
            return frame, [s[depth] for s in same], below if len(below) == len(same) else []
    return None, [], []


def _outermost_first(call: Call) -> list[Frame]:
    return [frame for frame in reversed(call.stack) if is_user_frame(frame)]
