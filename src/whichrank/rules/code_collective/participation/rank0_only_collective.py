"""A collective that one rank calls alone.

## What it finds
One rank waits in a collective that no other member of the group has any part in; the others went on with
their work or have finished.

## Why it happens
A collective, or a call that hides one, under `if rank == 0`: saving a sharded state dict (FSDP gathers), the
forward pass of a DDP model in an evaluation (buffers are broadcast), `barrier()`, `all_gather_object`.

## How it decides
The operation was issued by one rank only, the first of its group (or the others wait for nothing at all), and
it is not part of what the others do at that point. Where all of them have called it from the same line before, or the
script comes to it by a condition that does not ask for the rank, it is told as a conditional collective.

## Example
Rank 0 waits in `barrier #21` at `train.py:88 in save`; ranks 1-7 are in the next step's `all_reduce #21`.

## Fix
Move the call out of the condition so that every rank makes it; keep only the writing of the file inside.
For an evaluation on one rank call the bare module (`model.module`), not the DDP wrapper.

## Limits
In a group of two without earlier steps nobody is in the majority; the confidence says so.
"""

from __future__ import annotations

from collections.abc import Sequence

from whichrank.model.findings import Alternative, Finding, Grade, NotEvaluated, Subject
from whichrank.records.outline import Outline
from whichrank.records.stack import is_user_frame
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.collectives import unrecorded
from whichrank.timeline.collectives.lineup import Lineup
from whichrank.timeline.collectives.troubles.loops import Script
from whichrank.timeline.collectives.troubles.trouble import Trouble, calls_alone

CODE = "COLL102"
CAUSE = "rank0-only-collective"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if case.lineup is None:
        return NotEvaluated("flight-recorder dumps")
    absent = unrecorded.without_new_group(case)  # then it is that call which was left out
    return [
        _finding(case, t)
        for t in case.troubles
        if calls_alone(t, wording.lineup_of(case).groups[t.meeting.group].members)
        and (not absent or set(t.ranks) != set(absent))
    ]


def _finding(case: Case, trouble: Trouble) -> Finding:
    lineup = wording.lineup_of(case)
    row = trouble.acted if trouble.acted is not None else next(iter(trouble.meeting.joined.values()))
    name = wording.culprits_text(case, trouble.ranks).capitalize()
    plain = trouble.shape == "alone" or trouble.ranks == (0,)
    usual = trouble.shape == "alone" and (
        _called_by_others(lineup, row, trouble.meeting.absent) or _on_another_condition(case.outline, lineup, row)
    )
    cause, other = ("conditional-collective", CAUSE) if usual else (CAUSE, "conditional-collective")
    return Finding(
        code=CODE,
        cause=cause,
        category="hang" if trouble.hangs else "corruption",
        severity="error",
        grade=trouble.graded(Grade.SUPPORTS if plain else Grade.HINTS),
        kind="records",
        subject=Subject(
            ranks=trouble.ranks,
            code=(*wording.place(lineup, row, trouble.ranks[0]), *wording.place(lineup, trouble.due)),
        ),
        message=f"{name} alone called {wording.step(lineup, row)}; no other member of the group takes part in it.",
        evidence=wording.evidence(lineup, trouble),
        victims=trouble.victims if trouble.hangs else (),
        onset_ns=wording.onset(case, trouble),
        alternatives=(Alternative(other, "the others may have skipped it on a condition of their own"),),
        fix=(
            (
                f"Call {lineup.call_of(row).op} on every rank of the group, or not at all: "
                "take it out of the condition on the rank."
            ),
            (
                "Keep only the work itself (writing the file, printing) inside the condition; "
                "for an evaluation on one rank use the bare module."
            ),
        ),
    )


def _on_another_condition(lines: Outline, lineup: Lineup, row: int) -> bool:
    """Whether a condition leads to the call that does not ask for the rank."""
    frames = [frame for frame in lineup.call_of(row).stack if is_user_frame(frame)]
    if not frames or any(frame.file not in lines.branches for frame in frames):
        return False
    below = frames[:-1]  # the script itself stands under `if __name__ == "__main__"`
    branched = any(first <= f.line <= last for f in below for first, last in lines.branches[f.file])
    return branched and not Script(lines).for_some_ranks(below)


def _called_by_others(lineup: Lineup, row: int, others: Sequence[int]) -> bool:
    """Whether those who are not there have called it from the same line before, or in the same backward pass: then it
    is not of one rank alone."""
    call = lineup.call_of(row)
    if not any(map(is_user_frame, call.stack)) and not call.thread.startswith("pt_autograd"):
        return False
    return all(any(lineup.call[at] == lineup.call[row] for at in lineup.rows(rank)) for rank in others)
