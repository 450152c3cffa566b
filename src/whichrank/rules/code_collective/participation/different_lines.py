"""Ranks wait at different lines of the code.

## What it finds
By their stacks, or by the exceptions that ended them, most ranks wait at one line of the training code and a few
at another: they are in different collectives.

## Why it happens
A branch that some ranks take and others don't: an early return, a condition on local data or on the rank.

## How it decides
The deepest lines of the training code are compared among ranks that wait (in a collective, or in a call that
synchronises with the GPU). It speaks only when no dump and no NCCL log tells more than that a rank never came, when
nobody works elsewhere, and when there are exactly two lines. Where one of them has a clear majority, the ranks at the
other are named; where it is one against two, they are candidates; where it is even, all are. Two ranks that are all of
a job that stands still are judged where they wait in collectives of different names. Of processes that nothing calls
ranks, those at the other line are named by their pid.

## Example
Ranks 0, 1 and 3 are at `train.py:25 in sync_grads`, rank 2 is at `train.py:30 in train_step`.

## Fix
Compare the two lines: which condition before them differs between the ranks?

## Limits
Pipeline stages and ranks with different jobs wait at different lines by nature. A NCCL call returns at once, so on
NCCL the line is that of the next synchronising call, not of the collective.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from whichrank.facts.fixes import fix
from whichrank.model.evidence import Ref
from whichrank.model.findings import Alternative, CodePlace, Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.dump import Frame
from whichrank.records.events.collectives import MESSAGES
from whichrank.records.stack import ProcessStack, is_user_frame
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.stuck import ref_of
from whichrank.timeline.job_state.waiting_lines import (
    all_in_messages,
    outermost,
    somebody_works,
    two_sides,
    waiting_places,
)

CODE = "COLL116"
CAUSE = "conditional-collective"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if case.troubles and not case.stacks:
        return []
    if case.goes_on or somebody_works(case) or all_in_messages(case):
        return []
    if case.troubles:
        return _in_another_call(case)
    if not waiting_places(case):
        return _of_processes(case) or NotEvaluated("stacks, or exceptions of waiting ranks")
    sides = two_sides(case)
    if sides is None:
        return []
    few, many = sides
    found = _borne_out(case, _finding(few, many))
    if (few[0].file, few[0].function) == (many[0].file, many[0].function) and few[0].line > many[0].line:
        left = Alternative("uneven-inputs", "they may have run out of data and left the loop")
        found = replace(found, alternatives=(left, *found.alternatives))
    return [found if len(few[1]) * 2 < len(many[1]) else _undecided(found)]


def _in_another_call(case: Case) -> list[Finding]:
    """Where dumps show that a rank never came: its stack stands in a call that they don't record, at another line."""
    sides, trouble = two_sides(case), case.troubles[0]
    if sides is None or len(case.troubles) > 1 or trouble.shape != "stopped" or trouble.meeting.p2p:
        return []
    few, many = sides
    if set(few[1]) != set(trouble.ranks) or not all(rank in case.stacks for rank in (*few[1], *many[1])):
        return []
    if not all(case.activities[rank].collective for rank in few[1]):
        return []
    found = replace(_finding(few, many), grade=Grade.SUPPORTS)
    if all(_is_behind(case.stands(rank), case.stands(other)) for rank in few[1] for other in many[1]):
        decided = Alternative(CAUSE, "they may have left the loop on a condition of their own")
        return [replace(found, cause="uneven-inputs", alternatives=(decided,), fix=fix("uneven-inputs"))]
    return [
        replace(found, alternatives=(Alternative("uneven-inputs", "they may have run out of data before the others"),))
    ]


def _is_behind(frames: Sequence[Frame], others: Sequence[Frame]) -> bool:
    """Whether both are in one function, and the first at a later line of it: behind what the other still is in."""
    ways = ([frame for frame in stack if is_user_frame(frame)] for stack in (frames, others))
    for mine, theirs in zip(*map(reversed, ways), strict=False):
        if mine != theirs:
            return (mine.file, mine.function) == (theirs.file, theirs.function) and mine.line > theirs.line
    return False


def _borne_out(case: Case, found: Finding) -> Finding:
    """Surer where a transport also noticed that what met was not of one call."""
    from whichrank.timeline.collectives.reported_mismatches import other_sizes  # many patterns: dumps alone need none

    signs = other_sizes(case)
    if not signs:
        return found
    return replace(found, grade=Grade.SUPPORTS, evidence=(*found.evidence, *(sign.ref for sign in signs[:2])))


def _of_processes(case: Case) -> list[Finding]:
    """The same of processes that nothing calls ranks: all wait, most at one line and a few at another."""
    from whichrank.timeline.job_state.activity import of_unplaced  # many patterns: only where there is a stack

    doing = list(zip(case.unplaced, of_unplaced(case.unplaced), strict=True)) if not case.stacks else []
    if any(activity.doing != "waiting" or activity.collective in MESSAGES for _, activity in doing):
        return []
    found: dict[CodePlace, list[ProcessStack]] = defaultdict(list)
    for stack, activity in doing:
        if (place := activity.place or outermost(stack)) is not None:
            found[place].append(stack)
    if len(found) != 2:
        return []
    (here, few), (there, many) = sorted(found.items(), key=lambda item: len(item[1]))
    if len(few) == len(many) or any(stack.pid is None for stack in few):
        return []
    who = " and ".join(f"process {stack.pid}" for stack in few[:3]) + (", …" if len(few) > 3 else "")
    waits = "waits" if len(few) == 1 else "wait"
    return [
        _hang(
            Subject(code=(here, there)),
            f"{who.capitalize()} {waits} at {here}; the {len(many)} others at hand wait at {there}.",
            tuple(map(ref_of, (*few[:2], *many[:2]))),
        )
    ]


def _undecided(found: Finding) -> Finding:
    """What differs is clear, who is wrong is not: the smaller side are candidates, of two equal sides all."""
    few, many = found.subject.ranks, found.victims
    even = len(few) == len(many)
    return replace(
        found,
        grade=Grade.HINTS,
        kind="stacks",
        subject=replace(found.subject, ranks=(), candidates=tuple(sorted((*few, *many))) if even else few),
        victims=() if even else many,
        alternatives=(
            Alternative("collective-desync", "which of the two sides is wrong can't be told by stacks alone"),
        ),
    )


def _finding(few: tuple[CodePlace, dict[int, Ref]], many: tuple[CodePlace, dict[int, Ref]]) -> Finding:
    odd, rest = tuple(sorted(few[1])), tuple(sorted(many[1]))
    return _hang(
        Subject(ranks=odd, code=(CodePlace(few[0].file, few[0].line, few[0].function, odd[0]), many[0])),
        f"{wording.ranks_text(odd).capitalize()} {'waits' if len(odd) == 1 else 'wait'} at {few[0]}, "
        f"{wording.ranks_text(rest)} {'waits' if len(rest) == 1 else 'wait'} at {many[0]}.",
        (*list(few[1].values())[:2], *list(many[1].values())[:2]),
        rest,
    )


def _hang(subject: Subject, message: str, evidence: tuple[Ref, ...], victims: tuple[int, ...] = ()) -> Finding:
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="hang",
        severity="error",
        grade=Grade.HINTS,
        kind="stacks",
        subject=subject,
        message=message,
        evidence=evidence,
        victims=victims,
        alternatives=(
            Alternative("collective-desync", "they may do different work by design, and the reason lies elsewhere"),
        ),
        next=(
            NextStep(
                "whichrank env --for debug", "settings that record every collective, for the next run", (), "none"
            ),
        ),
        fix=("Compare the two lines: which condition before them differs between the ranks?",),
    )
