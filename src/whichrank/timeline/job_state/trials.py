"""What was tried and whether it helped, and what people say that they saw: it hints, it never proves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from whichrank.facts.interventions import ONE_HOST, did_nothing, interventions
from whichrank.facts.messages import REPORT, signatures
from whichrank.records.events.messages import KnownMessage
from whichrank.records.trial import Symptom, Trial

if TYPE_CHECKING:
    from whichrank.timeline.case import Case


def tried(case: Case) -> list[Trial]:
    """All that was tried: what people say, and what two runs show."""
    return [*(trial for trial in case.trials if not trial.seen), *case.experiments]


def effective(case: Case) -> list[Trial]:
    """What helped; a change that is reported both ways counts as neither."""
    return [t for t in tried(case) if t.outcome == "helped" and not _disputed(case, t)]


def ruled_out(case: Case, cause: str) -> Trial | None:
    """The trial that speaks against a cause: its remedy did not help, or the job works where the cause would act."""
    for trial in tried(case):
        change = interventions()[trial.change]
        against = "helped" if trial.change == ONE_HOST else "did not help"
        done = not change.unless or change.unless not in case.index.sightings
        if trial.outcome == against and cause in change.refuted and done and not _disputed(case, trial):
            return trial
    return None


def without_failed_trials(sightings: Sequence[KnownMessage]) -> list[KnownMessage]:
    """Without what people say about a change that did nothing: it does not speak for the cause that it would fix."""
    table = signatures()
    return [
        s
        for s in sightings
        if not (
            (table[s.signature].library == REPORT or table[s.signature].role == "activity") and did_nothing(s.words)
        )
    ]


def _disputed(case: Case, trial: Trial) -> bool:
    return len({t.outcome for t in tried(case) if t.change == trial.change and t.outcome != "unknown"}) > 1


def said_category(case: Case) -> Symptom | None:
    """What people say that the job does; the title counts double, a tie says nothing."""
    weights: dict[Symptom, int] = {}
    for complaint in case.complaints:
        weights[complaint.category] = weights.get(complaint.category, 0) + complaint.weight
    ordered = sorted(weights.items(), key=lambda pair: -pair[1])
    if not ordered or (len(ordered) > 1 and ordered[0][1] == ordered[1][1]):
        return None
    return ordered[0][0]
