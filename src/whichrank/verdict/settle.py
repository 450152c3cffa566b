"""Who of several candidates it is, where the values that ranks hold tell them apart.

A rule that sees ranks wait for each other can't always say whose mistake it is. Ranks that are to act alike hold the
same root or the same number of parts: the candidate that holds something else than all other ranks is the one.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from whichrank.facts.taxonomy import causes
from whichrank.model.findings import Finding
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.held_values import OddValue, singled_out

_FAMILY = "code-collective"
_SHOWN = 2


def settled(case: Case, finding: Finding) -> Finding:
    """The same with fewer candidates, or as it was."""
    subject = finding.subject
    told = causes().get(finding.cause)
    if not case.variables or subject.ranks or told is None or told.family != _FAMILY:
        return finding
    ranks, odd = singled_out(case.odd_values, subject.candidates)
    if not ranks:
        return finding
    others = tuple(rank for rank in subject.candidates if rank not in ranks)
    return replace(
        finding,
        subject=replace(subject, ranks=ranks, candidates=()),
        victims=tuple(sorted({*finding.victims, *others} - set(ranks))),
        message=f"{finding.message} {in_words(odd)}",
        evidence=(*(each.ref for each in odd[:_SHOWN]), *finding.evidence),
    )


def in_words(odd: Sequence[OddValue]) -> str:
    """`Rank 2 has leader = 2 in main, the other ranks have 1.`"""
    first = odd[0]
    rank = first.ranks[0]
    own = f"Rank {rank} has {first.name} = {first.held[rank]} in {first.frame.function}"
    return f"{own}, the other ranks have {first.usual}."
