"""A rank skipped or added a collective that the other members of its group did not.

## What it finds
One rank (or a minority) took another path through the code: it went past an operation that the rest of
its group is waiting in, or issued one that the rest never reaches.

## Why it happens
An early `return`, an `if` on local data (an empty batch, a NaN check, a metric), a branch on the rank, an
exception that is caught on one rank, or different module sequences on different ranks.

## How it decides
Operations are matched by group and sequence number. The odd ranks are those in the minority; where there is
no majority, sibling groups of the same kind and the ranks' own earlier steps decide. An operation counts as
skipped when the odd rank's next operations are the ones that follow it on the others' path. Where the odd rank comes
to its call by a condition on the rank, it is told as a collective of one rank.

## Example
Ranks 0, 1 and 3 wait in `all_reduce #5` at `train.py:25`; rank 2 went on to `all_gather #4` at `train.py:30`.

## Fix
Make the predicate the same on all ranks (all_reduce it first), or call the collective unconditionally and
ignore the result where it is not wanted.

## Limits
A rank that swaps two operations and waits in the first looks the same as one that skipped: the other reading
is listed as an alternative.
"""

from __future__ import annotations

from whichrank.model.findings import Alternative, CodePlace, Finding, Grade, NotEvaluated, Subject
from whichrank.records.stack import is_user_frame
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.lineup import Lineup
from whichrank.timeline.collectives.troubles.loops import Script, may_have_left
from whichrank.timeline.collectives.troubles.trouble import Trouble, calls_alone

CODE = "COLL101"
CAUSE = "conditional-collective"
_OF_ONE_RANK = "rank0-only-collective"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if case.lineup is None:
        return NotEvaluated("flight-recorder dumps")
    return [_finding(case, t) for t in case.troubles if _applies(case, t)]


def _applies(case: Case, trouble: Trouble) -> bool:
    members = wording.lineup_of(case).groups[trouble.meeting.group].members
    return trouble.shape == "skipped" or (trouble.shape in ("added", "alone") and not calls_alone(trouble, members))


def _finding(case: Case, trouble: Trouble) -> Finding:
    lineup = wording.lineup_of(case)
    name = wording.culprits_text(case, trouble.ranks).capitalize() if trouble.ranks else "Some ranks"
    waiting = wording.wait_text(trouble.victims) if trouble.hangs else "nothing hangs, the result is wrong"
    waiting += wording.likewise(lineup, trouble)
    acted = wording.step(lineup, trouble.acted) if trouble.acted is not None else ""
    due = wording.step(lineup, trouble.due) if trouble.due is not None else "the operation"
    if trouble.tie and len(trouble.meeting.parties) > 1:
        message = _sides(lineup, trouble)
    elif trouble.shape == "skipped":
        went = f" and went on to {acted}" if acted else ""
        message = f"{name} skipped {due}{went}; {waiting}."
    else:
        message = f"{name} issued {acted} where {due} was expected; {waiting}."
    other = Alternative("collective-order", "it may issue the missing operation later, in another order")
    if trouble.other is not None:
        other = Alternative("process-group-order", "it may come to the other group's operation later")
    others: tuple[Alternative, ...] = (other,)
    if trouble.due is not None and lineup.p2p[trouble.due]:
        others = (
            Alternative("p2p-unmatched", "a message may be one too many or too few"),
            Alternative("p2p-deadlock", "two ranks may wait for each other's messages"),
        )
    elif trouble.shape != "skipped":
        others = (Alternative("rank0-only-collective", "the operation may stand under a condition on the rank"),)
        if not case.outline.loops and may_have_left(lineup, trouble):
            others += (Alternative("uneven-inputs", "it may have run out of data and left its loop"),)
    cause = CAUSE
    if len(trouble.ranks) == 1 and _asks_for_the_rank(case, trouble):
        cause, others = _OF_ONE_RANK, (Alternative(CAUSE, "the others may have left it out"), *others)
    return Finding(
        code=CODE,
        cause=cause,
        category="hang" if trouble.hangs else "corruption",
        severity="error",
        grade=trouble.graded(Grade.SUPPORTS),
        kind="records",
        subject=Subject(
            ranks=() if trouble.tie else trouble.ranks,
            candidates=trouble.ranks if trouble.tie else (),
            code=_code(case, trouble),
        ),
        message=message,
        evidence=wording.evidence(lineup, trouble),
        victims=trouble.victims if trouble.hangs else (),
        alternatives=others,
        onset_ns=wording.onset(case, trouble),
        certificate=wording.certificate(lineup, trouble),
        fix=(
            (
                f"Look at the branch before {due} that {wording.ranks_text(trouble.ranks)} took differently "
                "(early return, condition on local data or rank)."
            ),
            (
                "Make every rank take the same branch: all_reduce the condition first, "
                "or call the collective unconditionally."
            ),
        ),
    )


def _asks_for_the_rank(case: Case, trouble: Trouble) -> bool:
    """Whether the one rank came to its call by a condition on the rank."""
    if trouble.acted is None:
        return False
    frames = [frame for frame in wording.lineup_of(case).call_of(trouble.acted).stack if is_user_frame(frame)]
    return Script(case.outline).for_some_ranks(frames[:-1])  # the script itself stands under `if __name__ == …`


def _sides(lineup: Lineup, trouble: Trouble) -> str:
    """What each side did, where nothing says which of them is right."""
    met = trouble.meeting
    did = [f"{wording.ranks_text(p)} issued {wording.step(lineup, met.joined[p[0]])}" for p in met.parties[:4]]
    return f"The ranks went different ways: {'; '.join(did)}. Nothing at hand says which side is right."


def _code(case: Case, trouble: Trouble) -> tuple[CodePlace, ...]:
    lineup = wording.lineup_of(case)
    rank = trouble.ranks[0] if trouble.ranks else None
    return (*wording.place(lineup, trouble.acted, rank), *wording.place(lineup, trouble.due))
