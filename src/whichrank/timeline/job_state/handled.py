"""Exceptions that a rank handles where it stands: why it went another way than the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from whichrank.facts.taxonomy import causes
from whichrank.model.findings import CodePlace, Finding

if TYPE_CHECKING:
    from whichrank.timeline.case import Case

_RAISED = "rank-exception"
_OF_THE_LOOP = ("StopIteration", "StopAsyncIteration", "GeneratorExit", "Empty", "Full")
"""Exceptions that say that something is over, and not that anything is wrong."""
_HELD = ("FileExistsError", "BlockingIOError", "AlreadyLocked", "LockTimeout")
"""Exceptions of those who come to a lock that somebody holds."""


def waits_for_a_lock(case: Case, finding: Finding) -> Finding:
    """A rank that is stuck in a loop in which it tries again to create a file that is there waits for who made it."""
    cause = causes().get(finding.cause)
    if cause is None or cause.family != "slow-rank" or finding.category != "hang" or len(finding.subject.ranks) != 1:
        return finding
    (rank,) = finding.subject.ranks
    if not _tries_again(case, rank) or case.handling[rank][0].type not in _HELD:
        return finding
    error, ref = case.handling[rank]
    raised = CodePlace(error.frame.file, error.frame.line, error.frame.function, rank)
    return replace(
        finding,
        cause="stale-lock-or-store",
        message=f"{finding.message[:-1]}; it tries again and again, with {error.type} at {raised}: {error.text}.",
        evidence=(ref, *finding.evidence),
        fix=(
            "Look who made that file: a job that was killed leaves its lock behind. Remove it if nobody holds it.",
            "Use a lock that ends with its process (flock), or write the process into it and check whether it lives.",
        ),
    )


def while_handling(case: Case, finding: Finding) -> Finding:
    """A rank that went another way while it handled an exception went there because of it."""
    cause = causes().get(finding.cause)
    if cause is None or cause.family != "code-collective" or finding.category != "hang":
        return finding
    handling = {rank: told for rank, told in case.handling.items() if told[0].type not in _OF_THE_LOOP}
    meant = finding.subject.ranks or tuple(rank for rank in finding.subject.candidates if rank in handling)
    if not meant or not handling.keys() >= set(meant) or len(handling) * 2 > max(case.world, 2):
        return finding
    if any(_tries_again(case, rank) for rank in meant):
        return finding
    error, ref = handling[meant[0]]
    raised = CodePlace(error.frame.file, error.frame.line, error.frame.function, meant[0])
    return replace(
        finding,
        cause=_RAISED,
        subject=replace(finding.subject, ranks=meant, candidates=(), code=(raised, *finding.subject.code)),
        message=f"{finding.message[:-1]}; rank {meant[0]} was handling {error.type}, raised at {raised}.",
        evidence=(ref, *finding.evidence),
        fix=(
            f"Fix the {error.type} of rank {meant[0]}: it left the common path there.",
            "Don't communicate in except, finally or __exit__, where the other ranks don't come.",
        ),
    )


def _tries_again(case: Case, rank: int) -> bool:
    """Whether a rank stands in the loop in which the exception was raised that it handles: it tries again."""
    told, activity = case.handling.get(rank), case.activities.get(rank)
    if told is None or activity is None or activity.place is None or activity.doing == "waiting":
        return False
    raised, place = told[0].frame, activity.place
    if (raised.file, raised.function) != (place.file, place.function):
        return False
    return any(loop.holds(raised.line) and loop.holds(place.line) for loop in case.outline.loops.get(place.file, ()))
