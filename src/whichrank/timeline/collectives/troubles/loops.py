"""Whether ranks parted at the end of a loop: by the lines of their calls and the loops of the script."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from whichrank.records.dump import Frame
from whichrank.records.outline import Loop, Outline
from whichrank.records.stack import is_user_frame
from whichrank.timeline.collectives.lineup import Lineup
from whichrank.timeline.collectives.troubles.arms import comes_below
from whichrank.timeline.collectives.troubles.one_line import Place, lines_of_both, of_two_names
from whichrank.timeline.collectives.troubles.threads import order_shape
from whichrank.timeline.collectives.troubles.trouble import Shape, Trouble

Loops = Mapping[str, Sequence[Loop]]
Stands = Callable[[int], Sequence[Frame]]
_OTHER_SHAPES = ("added", "swapped", "skipped", "alone")


class Script(Struct, frozen=True):
    """What is known of the lines of the job's scripts."""

    lines: Outline

    def are_two(self, one: Place, other: Place) -> bool:
        """Whether two lines are of two functions, which may have one name."""
        own, their = (
            {span for span in self.lines.functions.get(file, ()) if span[0] <= line <= span[1]}
            for file, _, line in (one, other)
        )
        return of_two_names(one, other) or (bool(own) and bool(their) and own.isdisjoint(their))

    def for_some_ranks(self, frames: Sequence[Frame]) -> bool:
        """Whether a condition on the rank leads to one of these lines."""
        return any(first <= f.line <= last for f in frames for first, last in self.lines.by_rank.get(f.file, ()))

    def may_leave_out(self, frames: Sequence[Frame], loop: Loop) -> bool:
        """Whether a round of the loop may not come to the innermost of these lines; also where nobody looked.

        The first frame is in the loop, the others are in functions that it calls."""
        if any(frame.file not in self.lines.branches for frame in frames):
            return True
        for frame in frames:
            outer = loop.first if frame is frames[0] else 0
            if any(outer < first <= frame.line <= last for first, last in self.lines.branches[frame.file]):
                return True
        return False


def at_the_end(lineup: Lineup, troubles: Sequence[Trouble], script: Script, stands: Stands) -> list[Trouble]:
    """The troubles; those of ranks that parted at the end of a loop have that shape.

    `stands` tells where the main thread of a rank is: calls of backward threads have no Python frames."""
    return [_at_a_loop(lineup, trouble, script, stands) for trouble in troubles]


def _at_a_loop(lineup: Lineup, trouble: Trouble, script: Script, stands: Stands) -> Trouble:
    if trouble.shape == "crossed":
        parted = _one_side_left(lineup, trouble, script.lines.loops, stands)
        return _of_one_rank(lineup, parted, script, stands) if parted is trouble else parted
    if trouble.shape == "left-loop" and _within_one_round(lineup, trouble, script.lines.loops, stands):
        return replace(trouble, shape="added")  # by the order of lines alone it looked so
    if _parted_at_loop(lineup, trouble, script, stands):
        return replace(trouble, shape="left-loop")
    if trouble.shape == "swapped" and _above_on_its_rank(lineup, trouble, script, stands):
        return replace(trouble, shape="added")
    if _comes_below(lineup, trouble, script, stands):
        return replace(trouble, shape=order_shape(lineup, trouble))
    return replace(trouble, shape="swapped") if _order_of_one_line(lineup, trouble, script) else trouble


def _within_one_round(lineup: Lineup, trouble: Trouble, loops: Loops, stands: Stands) -> bool:
    """Whether one loop holds the lines of both sides, and none has only the others in it: nobody has left it."""
    if trouble.acted is None or trouble.due is None:
        return False
    there = fork(_stack(lineup, trouble.acted, stands), _stack(lineup, trouble.due, stands))
    if there is None:
        return False
    mine, other, within = there
    around = [loop for loop in loops.get(mine.file, ()) if loop.holds(other.line)]
    inside = within is not None and any(loop.holds(within.line) for loop in loops.get(within.file, ()))
    return bool(around) and all(loop.holds(mine.line) for loop in around) and not inside


def _above_on_its_rank(lineup: Lineup, trouble: Trouble, script: Script, stands: Stands) -> bool:
    """Whether one rank is in a call under a condition on the rank, above the line at which the others wait: they don't
    come to it, in whatever order."""
    if len(trouble.ranks) != 1 or trouble.acted is None or trouble.due is None:
        return False
    there = fork(_stack(lineup, trouble.acted, stands), _stack(lineup, trouble.due, stands))
    if there is None or there[0].line > there[1].line:
        return False
    return script.for_some_ranks(there[:1]) and not script.for_some_ranks(there[1:2])


def _comes_below(lineup: Lineup, trouble: Trouble, script: Script, stands: Stands) -> bool:
    """Whether the ranks only put off what the others wait in."""
    if trouble.shape not in ("skipped", "added") or trouble.acted is None or trouble.due is None:
        return False
    there = fork(_stack(lineup, trouble.acted, stands), _stack(lineup, trouble.due, stands))
    return there is not None and comes_below(script.lines, *there)


def _order_of_one_line(lineup: Lineup, trouble: Trouble, script: Script) -> bool:
    """Whether one line that sorts calls both operations of a group, or one loop over what was sorted by a key does:
    none of them was left out."""
    acted, due = trouble.acted, trouble.due
    if trouble.shape != "skipped" or acted is None or due is None or lineup.group[acted] != lineup.group[due]:
        return False
    callers = lines_of_both(lineup, acted, due, script.are_two)
    there = fork(lineup.call_of(acted).stack, lineup.call_of(due).stack)
    if there is not None and there[0].line != there[1].line:
        spans = script.lines.sorts.get(there[0].file, ())
        if any(a <= there[0].line <= b and a <= there[1].line <= b for a, b in spans):
            return True
    return any(a <= line <= b for file, _, line in callers for a, b in script.lines.sorts.get(file, ()))


def _one_side_left(lineup: Lineup, trouble: Trouble, loops: Loops, stands: Stands) -> Trouble:
    """Two sides that wait for each other: the one behind a loop in which the other still is has left it."""
    sides = set(trouble.ranks) if trouble.tie else {*trouble.ranks, *trouble.victims}
    for missed in (trouble.meeting, *([trouble.other] if trouble.other else [])):
        gone, still = set(missed.absent) & sides, set(missed.joined)
        if not gone or gone | still != sides or min(gone) not in lineup.first:
            continue
        if not trouble.tie and gone != set(trouble.ranks):
            continue
        acted, due = lineup.first[min(gone)][1] - 1, missed.joined[min(still)]
        mine, theirs = _stack(lineup, acted, stands), _stack(lineup, due, stands)
        behind = left(mine, theirs, loops) or _returned_at_one_line(lineup, acted, due, mine, theirs, loops)
        if behind:
            # By a `break` they left on a condition, not because they ran out.
            shape: Shape = "skipped" if any(loop.exits for loop in behind) else "left-loop"
            victims = tuple(sorted({*trouble.victims, *still}))
            return replace(
                trouble, shape=shape, ranks=tuple(sorted(gone)), meeting=missed, victims=victims, acted=acted,
                due=due, other=None, cycle=(), tie=False, unsure=False,
            )  # fmt: skip
    return trouble


def _returned_at_one_line(
    lineup: Lineup, acted: int, due: int, mine: Sequence[Frame], theirs: Sequence[Frame], loops: Loops
) -> list[Loop]:
    """The loops of a function that the others are in and the rank has come from, where one line calls that function and
    the one that the rank is in: `collect(train_epoch())`."""
    own, others = ([frame for frame in reversed(stack) if is_user_frame(frame)] for stack in (mine, theirs))
    alike = next((at for at, pair in enumerate(zip(own, others, strict=False)) if pair[0] != pair[1]), 0)
    if not alike or (own[alike].file, own[alike].function) == (others[alike].file, others[alike].function):
        return []
    within = others[alike]
    came_from = acted - 1 in lineup.rows(int(lineup.rank[acted])) and lineup.call[acted - 1] == lineup.call[due]
    return [loop for loop in loops.get(within.file, ()) if came_from and loop.holds(within.line)]


def _of_one_rank(lineup: Lineup, trouble: Trouble, script: Script, stands: Stands) -> Trouble:
    """A call under a condition on the rank, past which all others are: they don't come to it, in whatever order."""
    acted, due, sits = trouble.acted, trouble.due, trouble.other
    if acted is None or due is None or sits is None or set(sits.joined) != set(trouble.ranks):
        return trouble
    mine, theirs = _stack(lineup, acted, stands), _stack(lineup, due, stands)
    there = fork(mine, theirs)
    if there is None or there[1].line <= there[0].line or script.for_some_ranks(there[1:2]):
        return trouble
    inward = list(mine)[: list(mine).index(there[0]) + 1]
    if not script.for_some_ranks([frame for frame in inward if is_user_frame(frame)]):
        return trouble
    return replace(trouble, shape="alone", meeting=sits, other=None, cycle=())


def _stack(lineup: Lineup, row: int, stands: Stands) -> Sequence[Frame]:
    """Where a rank issued what it waits in; calls of backward threads have no Python frames."""
    issued = lineup.call_of(row).stack
    return issued if any(map(is_user_frame, issued)) else stands(int(lineup.rank[row]))


def _parted_at_loop(lineup: Lineup, trouble: Trouble, script: Script, stands: Stands) -> bool:
    if trouble.shape not in _OTHER_SHAPES or trouble.acted is None or trouble.due is None or not trouble.ranks:
        return False
    theirs = lineup.call_of(trouble.due).stack
    if not any(map(is_user_frame, theirs)) and trouble.victims and trouble.hangs:
        theirs = tuple(stands(trouble.victims[0]))  # it still waits there
    acted = lineup.call_of(trouble.acted).stack
    there = fork(acted, theirs)
    if there is None or script.for_some_ranks(acted):
        return False
    mine, other, within = there
    between = [
        loop
        for loop in script.lines.loops.get(mine.file, ())
        if loop.holds(mine.line) != loop.holds(other.line)
        if loop.holds(other.line) or _entered(lineup, trouble.victims, mine, loop)
    ]
    if _had_left(lineup, trouble.acted, mine, between):
        return False
    if _passed_before(lineup, trouble.acted, mine) and not _every_round_comes_to(theirs, mine, other, between, script):
        return False  # a round that left something out looks the same
    between = between or _returned_from(mine, other, within, script.lines.loops)
    # A loop with a break, or with a condition, may have been left on it.
    return bool(between) and not any(loop.exits for loop in between)


def _every_round_comes_to(
    theirs: Sequence[Frame], mine: Frame, other: Frame, loops: Sequence[Loop], script: Script
) -> bool:
    """Whether no round of the loop that the rank is behind can leave out what the others wait in."""
    behind = [loop for loop in loops if loop.holds(other.line) and loop.last < mine.line]
    outermost_first = [frame for frame in reversed(theirs) if is_user_frame(frame)]
    below = outermost_first[outermost_first.index(other) :]
    return bool(behind) and not script.may_leave_out(below, behind[-1])


def _returned_from(mine: Frame, other: Frame, within: Frame | None, loops: Loops) -> list[Loop]:
    """The loops of a function that the rank has come back from and in which the others still are."""
    if within is None or mine.line <= other.line:
        return []
    return [loop for loop in loops.get(within.file, ()) if loop.holds(within.line)]


def _entered(lineup: Lineup, ranks: Sequence[int], mine: Frame, loop: Loop) -> bool:
    """Whether the others have ever called something in this loop: it may run over what one rank alone has."""
    calls = {int(call) for rank in ranks if rank in lineup.first for call in lineup.call[slice(*lineup.first[rank])]}
    frames = (frame for call in calls for frame in lineup.calls[call].stack)
    return any((f.file, f.function) == (mine.file, mine.function) and loop.holds(f.line) for f in frames)


def may_have_left(lineup: Lineup, trouble: Trouble) -> bool:
    """Whether by the lines alone, without the script, the rank may have left a loop: it is further down than the others
    in one function, at a line where it had not been."""
    if trouble.acted is None or trouble.due is None:
        return False
    there = fork(lineup.call_of(trouble.acted).stack, lineup.call_of(trouble.due).stack)
    return there is not None and there[0].line > there[1].line and not _passed_before(lineup, trouble.acted, there[0])


def left(mine: Sequence[Frame], theirs: Sequence[Frame], loops: Loops) -> list[Loop]:
    """The loops that the first stack stands behind and the second is in."""
    there = fork(mine, theirs)
    if there is None or there[0].line <= there[1].line:
        return []
    own, other, within = there
    behind = [loop for loop in loops.get(own.file, ()) if loop.holds(other.line) and loop.last < own.line]
    return behind or _returned_from(own, other, within, loops)


def _had_left(lineup: Lineup, acted: int, mine: Frame, loops: Sequence[Loop]) -> bool:
    """Whether the rank's call before this one stands behind the loop too: then it left the loop with the others."""
    if acted - 1 not in lineup.rows(int(lineup.rank[acted])):
        return False
    before = lineup.call_of(acted - 1).stack
    same = (frame for frame in before if (frame.file, frame.function) == (mine.file, mine.function))
    return any(loop.last < frame.line for frame in same for loop in loops)


def _passed_before(lineup: Lineup, acted: int, mine: Frame) -> bool:
    """Whether the rank had been at this line before: it has gone through the loop in step with the others until now."""
    start, _ = lineup.first[int(lineup.rank[acted])]
    earlier = {int(call) for call in lineup.call[start:acted]}
    return any(mine in lineup.calls[call].stack for call in earlier)


def fork(mine: Sequence[Frame], theirs: Sequence[Frame]) -> tuple[Frame, Frame, Frame | None] | None:
    """The outermost function in which the two stacks stand at different lines, and what the second calls there."""
    own, others = ([frame for frame in reversed(stack) if is_user_frame(frame)] for stack in (mine, theirs))
    for at, (one, other) in enumerate(zip(own, others, strict=False)):
        if (one.file, one.function) != (other.file, other.function):
            return None
        if one.line != other.line:
            return one, other, others[at + 1] if at + 1 < len(others) else None
    return None
