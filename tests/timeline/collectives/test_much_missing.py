"""A job of which most ranks left no dump: it takes no longer, and nobody is accused for what was not collected."""

from __future__ import annotations

from tests.evidence.summary import many_ranks
from whichrank.timeline.assemble import build_case
from whichrank.timeline.collectives import positions

WORLD = 2048


def case_of(ranks, world=WORLD, culprit=-1):
    return build_case([many_ranks.dump(rank, world, culprit) for rank in ranks])


def test_more_missing_ranks_than_a_host_has_accuse_nobody():
    case = case_of(range(256))
    (trouble,) = case.troubles
    assert trouble.shape == "undecided"
    assert trouble.ranks == ()
    assert set(trouble.candidates) == set(range(256, WORLD))


def test_the_ranks_of_one_host_are_named():
    missing = set(range(64, 72))
    (trouble,) = case_of([rank for rank in range(256) if rank not in missing], 256).troubles
    assert trouble.shape == "lost"
    assert set(trouble.ranks) == missing


def test_who_waits_for_whom_stays_small():
    waits = positions.waits(case_of(range(512)))
    assert waits
    assert sum(len(wait.waits_for) for wait in waits) < positions.MOST_NAMED + WORLD
