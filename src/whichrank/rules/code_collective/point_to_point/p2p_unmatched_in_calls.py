"""A rank waits in a send or recv that its peer never matches, by the calls that they recorded.

## What it finds
Two ranks that wait for each other's messages, one of them in an earlier part of the program than the other, or ranks
that wait for a message of one that has gone on to a collective, where no recorder holds messages.

## Why it happens
A skipped micro-batch on one stage, a schedule that differs between stages, a wrong peer.

## How it decides
Processes under `whichrank run` record which peer they send to or receive from, and stacks of `py-spy dump --locals`
show it. Where two wait for each other, and one
of them has made more optimizer steps, or in the same step has gone on to a later call of a function that both are in,
that one has passed the place where it should have posted its half. Where one waits in a collective, and all that have
not come to it wait for its message, directly or one after the other, that one has left the exchange. Where both
receive, each in a function of its own (a server and its client), a message was left out, and either may have done it:
both are candidates. Where every rank waits for a message and nothing tells whose, all of them are.

## Example
Rank 3 is in `recv from rank 2` in `forward`; rank 2 has gone on to `backward` and is in `recv from rank 3`.

## Limits
In a loop whose rounds nothing counts (no optimizer steps), either of two ranks may be a round ahead: both are
candidates.
"""

from __future__ import annotations

from msgspec.structs import replace

from whichrank.facts.fixes import fix
from whichrank.model.findings import Alternative, Finding, Grade, NotEvaluated, Subject
from whichrank.records.events.collectives import MESSAGES, SENDS, InOperation
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.collectives import point_to_point
from whichrank.timeline.collectives.point_to_point import Circle
from whichrank.timeline.collectives.troubles.trouble import Trouble

CODE = "COLL132"
CAUSE = "p2p-unmatched"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.events(InOperation) and not case.natives:
        return NotEvaluated("per-rank send/recv peers (whichrank run)")
    circles = point_to_point.circles(case)
    everyone = point_to_point.all_in_messages(case)
    if everyone and not circles:
        return [_nobody_matches(case, everyone)]
    found = [_finding(case, circle, circle.past) for circle in circles if circle.past is not None]
    found += [_lost(case, circle) for circle in circles if circle.lost]
    if circles:  # the others wait behind those
        return found
    if (gone := point_to_point.gone_on(case)) is not None:
        return [_went_on(case, gone)]
    return [_left(case, trouble) for trouble in case.troubles if trouble.shape == "left-messages"]


def _nobody_matches(case: Case, ranks: tuple[int, ...]) -> Finding:
    place = case.activities[ranks[0]].place
    message = (
        f"{wording.ranks_text(ranks).capitalize()} all wait for messages"
        f"{f' at {place}' if place else ''}: nobody posts the half that another waits for."
    )
    other = Alternative("p2p-deadlock", "the halves may be posted in an order in which each waits for the other")
    odd = point_to_point.odd_partner(case)
    if odd is None:
        return _found(case, (ranks[0], ranks[1]), Subject(candidates=ranks), message, Grade.HINTS, (), other)
    waiting = tuple(rank for rank in ranks if rank != odd)
    message = (
        f"{wording.ranks_text(ranks).capitalize()} all wait for messages: {wording.who(case, odd)} waits for a rank "
        "that has finished this round with another, and the rank that should be its partner waits for it."
    )
    return _found(case, (odd, waiting[0]), Subject(ranks=(odd,)), message, Grade.SUPPORTS, waiting, other)


def _left(case: Case, trouble: Trouble) -> Finding:
    sits = point_to_point.sitting(case)
    if not sits or len(trouble.ranks) != 1:
        return _owed(case, trouble)
    return replace(_went_on(case, trouble.ranks[0]), onset_ns=wording.onset(case, trouble))


def _went_on(case: Case, rank: int) -> Finding:
    """A rank that waits in a collective, while another waits for its message."""
    sits = point_to_point.sitting(case)
    waiting = tuple(sorted(sits.keys() - {rank}))
    first = next(other for other in waiting if sits[other].peer == rank)
    ahead = case.activities[rank].collective or "other calls"
    message = (
        f"{wording.who(case, first).capitalize()} waits in {point_to_point.told(sits[first])}, but "
        f"{wording.who(case, rank)} has gone on to {ahead}: a message was left out."
    )
    other = Alternative("uneven-inputs", "it may have had fewer batches than the others")
    found = _found(case, (rank, first), Subject(ranks=(rank,)), message, Grade.SUPPORTS, waiting, other)
    return replace(
        found,
        evidence=wording.sat(case, (first, rank)),
    )


def _owed(case: Case, trouble: Trouble) -> Finding:
    """Who waits for messages is known; of whom, only where they have one peer in common."""
    owing = trouble.ranks or trouble.candidates
    waiting = tuple(r for r in trouble.victims if case.activities[r].collective in MESSAGES)
    verb = "waits" if len(waiting) == 1 else "wait"
    whose = "it never posted its half" if trouble.ranks else "one of them never posted its half"
    message = (
        f"{wording.ranks_text(waiting).capitalize()} {verb} for messages; {wording.ranks_text(owing)} went on to "
        f"{case.activities[owing[0]].collective or 'other calls'}: {whose}."
    )
    other = Alternative("p2p-deadlock", "both may post their halves in the wrong order")
    subject = Subject(ranks=trouble.ranks, candidates=trouble.candidates)
    found = _found(case, (waiting[0], owing[0]), subject, message, Grade.SUPPORTS, trouble.victims, other)
    return replace(found, onset_ns=wording.onset(case, trouble))


def _finding(case: Case, circle: Circle, past: int) -> Finding:
    sits = point_to_point.sitting(case)
    left = next(rank for rank in circle.ranks if rank != past)
    message = (
        f"{wording.who(case, left).capitalize()} waits in {point_to_point.told(sits[left])} for a half that "
        f"{wording.who(case, past)} never posted: it has gone on to {point_to_point.told(sits[past])}."
    )
    other = Alternative("p2p-deadlock", "both may post their halves in the wrong order")
    victims = tuple(sorted((left, *circle.victims)))
    return _found(case, (past, left), Subject(ranks=(past,)), message, Grade.SUPPORTS, victims, other)


def _lost(case: Case, circle: Circle) -> Finding:
    sits = point_to_point.sitting(case)
    one, other = sorted(circle.ranks)
    neither = "receives" if sits[one].op in SENDS else "sends"
    message = (
        f"A message between ranks {one} and {other} was left out: rank {one} is in "
        f"{point_to_point.told(sits[one])}, rank {other} in {point_to_point.told(sits[other])}, and neither {neither}."
    )
    deadlock = Alternative("p2p-deadlock", "both may post their halves in the wrong order")
    return _found(
        case, (one, other), Subject(candidates=(one, other)), message, Grade.SUPPORTS, circle.victims, deadlock
    )


def _found(
    case: Case, shown: tuple[int, int], subject: Subject, message: str, grade: Grade, victims: tuple[int, ...],
    other: Alternative,
) -> Finding:  # fmt: skip
    """With the places and the words of the two ranks that are shown."""
    places = (case.activities[rank].place for rank in shown)
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="hang",
        severity="error",
        grade=grade,
        kind="stacks",
        subject=replace(subject, code=tuple(place for place in places if place)),
        message=message,
        evidence=wording.sat(case, shown),
        victims=victims,
        alternatives=(other,),
        fix=fix(CAUSE),
    )
