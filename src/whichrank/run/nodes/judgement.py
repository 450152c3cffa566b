"""The leader's verdict, short enough to be told to every node: what they need to start again, or not to."""

from __future__ import annotations

from typing import Annotated

import msgspec

from whichrank.model.findings import Category, CodePlace, Subject
from whichrank.model.verdict import Diagnosis, Position, RankInfo, Verdict

MOST_NAMED = 4096
Word = Annotated[str, msgspec.Meta(max_length=4096)]


class Judgement(msgspec.Struct, frozen=True):
    """What a verdict says, without its proof."""

    category: Category
    cause: Word
    confidence: float
    summary: Word
    ranks: Annotated[list[int], msgspec.Meta(max_length=MOST_NAMED)] = []
    hosts: Annotated[list[Word], msgspec.Meta(max_length=MOST_NAMED)] = []
    file: Word = ""
    line: int = 0
    reached: int | None = None
    """Collectives of the furthest rank."""


def shortened(diagnosis: Diagnosis) -> Judgement:
    verdict = diagnosis.verdict
    gpus = tuple(dict.fromkeys(gpu.host for gpu in verdict.culprits.gpus if gpu.host))
    place = next(iter(verdict.culprits.code), None)
    return Judgement(
        verdict.category,
        verdict.cause,
        verdict.confidence,
        verdict.summary[:4096],
        list(verdict.culprits.ranks[:MOST_NAMED]),
        list((verdict.culprits.hosts or gpus)[:MOST_NAMED]),
        place.file[:4096] if place else "",
        place.line if place else 0,
        max((rank.reached.seq for rank in diagnosis.ranks if rank.reached is not None), default=None),
    )


def restored(judgement: Judgement) -> Diagnosis:
    """As much of the diagnosis as was told."""
    code = (CodePlace(judgement.file, judgement.line, "", None),) if judgement.file else ()
    culprits = Subject(ranks=tuple(judgement.ranks), hosts=tuple(judgement.hosts), code=code)
    verdict = Verdict(
        judgement.category, judgement.cause, culprits, (), min(1.0, max(0.0, judgement.confidence)), judgement.summary
    )
    ranks = (RankInfo(0, at=Position("", judgement.reached, "")),) if judgement.reached is not None else ()
    return Diagnosis(verdict, ranks=ranks)
