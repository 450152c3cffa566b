"""A communicator that only one side began to make: a message or a group that others don't come to.

## What it finds
Ranks that wait in a send or receive, or in the first call of a group made by `new_group`, for a communicator that the
other side never begins to make.

## Why it happens
Everybody receives first (or sends first), one rank left its half of an exchange out, or a group is used by some of its
members only.

## How it decides
NCCL's communicators are made by the first call that needs them. torch says in its error under which key a rank
waited: `1:3` is a message between ranks 1 and 3, and rank 1 did not come to it; a key with the number of a group is
of that group. torch numbers groups on each rank by itself: few ranks that wait under a number of their own, at the
line where all others are, made one more group. Who is waited for and does not wait itself is a candidate; its
stack decides. Where the stacks of all ranks are in a receive at one line, nobody is left to send.

## Example
`[3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] … by key '1:3' … wait timeout after 22000ms`

## Limits
Only the higher of the two ranks waits in the store; the lower one, which makes the id, is silent. A thread may send
while the main thread of the same process receives.
"""

from __future__ import annotations

from whichrank.facts.fixes import fix
from whichrank.model.evidence import Ref
from whichrank.model.findings import Alternative, Finding, Grade, NotEvaluated, Subject
from whichrank.records.events.collectives import MESSAGES, RECEIVES, SENDS, InOperation
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.set_ups import SetUps, unmade
from whichrank.timeline.collectives.stuck import stack_ref

CODE = "COLL144"
CAUSE = "p2p-unmatched"
_BRANCH = "conditional-collective"
_FIX_OF_GROUPS = (
    "Call new_group on every rank of the job, in the same order, also where a rank is not a member.",
    "Check that every member comes to the first call of the group.",
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    seen = unmade(case)
    if not (seen.pairs or seen.groups):
        return NotEvaluated("errors of communicators that were not made")
    if case.troubles or case.events(InOperation) or case.goes_on:
        return []  # recorded operations tell more
    if not seen.pairs:
        return [_group(case, seen)]
    same = _all_in_one_half(case)
    return [_same_half(case, same) if same else _message(case, seen)]


def _all_in_one_half(case: Case) -> tuple[int, ...]:
    """All ranks, where each is in a receive at the same line, or each in a send."""
    ops = {rank: activity.collective for rank, activity in case.activities.items()}
    everybody = len(ops) > 1 and ops.keys() == set(range(case.world or len(ops)))
    alike = set(ops.values()) <= SENDS or set(ops.values()) <= RECEIVES
    at_one_line = len({activity.place for activity in case.activities.values()}) == 1
    return tuple(sorted(ops)) if everybody and alike and at_one_line else ()


def _same_half(case: Case, ranks: tuple[int, ...]) -> Finding:
    op = "receive" if case.activities[ranks[0]].collective in RECEIVES else "send"
    other = "send" if op == "receive" else "receive"
    places = dict.fromkeys(case.activities[rank].place for rank in ranks)
    message = f"All ranks ({wording.ranks_text(ranks)}) wait to {op}, and nobody is left to {other}."
    subject = Subject(ranks=ranks, code=tuple(place for place in places if place)[:3])
    evidence = tuple(stack_ref(case, rank) for rank in ranks[:4])
    left_out = Alternative(CAUSE, "one half may have been left out rather than postponed")
    return _finding("p2p-deadlock", Grade.SUPPORTS, subject, message, evidence, (), (left_out,))


def _message(case: Case, seen: SetUps) -> Finding:
    """Those who are waited for and don't wait in the store themselves: the waiting ends there."""
    heads = tuple(sorted({peer for peer, _ in seen.pairs.values()} - seen.pairs.keys()))
    doing = {rank: case.activities[rank] for rank in heads if rank in case.activities}
    elsewhere = len(doing) == len(heads) and all(a.collective not in MESSAGES for a in doing.values())
    waits = "; ".join(f"rank {rank} for rank {peer}" for rank, (peer, _) in sorted(seen.pairs.items())[:6])
    evidence = (*(stack_ref(case, rank) for rank in doing), *(ref for _, ref in seen.pairs.values()))[:5]
    who = f"{wording.ranks_text(heads).capitalize()} did not come to a message: " if heads else ""
    message = f"{who}messages wait for the other side to begin ({waits})."
    circle = bool(doing) and not elsewhere
    cause, other = ("p2p-deadlock", CAUSE) if circle or not heads else (CAUSE, "p2p-deadlock")
    subject = Subject(ranks=heads) if elsewhere and heads else Subject(candidates=heads)
    victims = tuple(sorted(seen.pairs))
    why = Alternative(other, "the evidence does not show what the other side waits for")
    return _finding(
        cause, Grade.SUPPORTS if elsewhere and heads else Grade.HINTS, subject, message, evidence, victims, (why,)
    )


def _group(case: Case, seen: SetUps) -> Finding:
    """A group that its first member does not come to. Each rank numbers its groups: who made one more waits under a
    number that nobody else has, at the line where all others are."""
    name, waiting = next(iter(seen.groups.items()))
    ranks = tuple(sorted(waiting))
    verb = "waits" if len(ranks) == 1 else "wait"
    whose = wording.ranks_text(ranks).capitalize()
    message = f"{whose} {verb} for the first member of group {name}, which never began to use it."
    others = Alternative("process-group-order", "it may be in a call of another group, which waits for these")
    places = {activity.place for activity in case.activities.values()}
    alike = len(places) == 1 and None not in places and waiting.keys() < case.activities.keys()
    if not alike or 2 * len(ranks) >= len(case.activities):
        return _finding(_BRANCH, Grade.HINTS, Subject(), message, tuple(waiting.values())[:4], ranks, (others,))
    rest = tuple(sorted(case.activities.keys() - waiting.keys()))
    message = (
        f"{whose} {verb} in group {name}, {wording.ranks_text(rest)} at the same line in a group of another number: "
        "not all ranks have called new_group equally often."
    )
    evidence = (*list(waiting.values())[:3], stack_ref(case, ranks[0]), stack_ref(case, rest[0]))
    return _finding(_BRANCH, Grade.SUPPORTS, Subject(ranks=ranks), message, evidence, rest, (others,))


def _finding(
    cause: str,
    grade: Grade,
    subject: Subject,
    message: str,
    evidence: tuple[Ref, ...],
    victims: tuple[int, ...],
    alternatives: tuple[Alternative, ...],
) -> Finding:
    return Finding(
        code=CODE,
        cause=cause,
        category="hang",
        severity="error",
        grade=grade,
        kind="stacks" if not victims else "messages",
        subject=subject,
        message=message,
        evidence=evidence,
        victims=victims,
        alternatives=alternatives,
        fix=_FIX_OF_GROUPS if cause == _BRANCH else fix(cause),
    )
