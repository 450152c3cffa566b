"""What was tried and whether it helped, and what people say that they saw: it hints, it never proves.

The tables of changes and messages are loaded only where somebody says something."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whichrank.records.events.messages import KnownMessage
    from whichrank.records.trial import Symptom, Trial
    from whichrank.timeline.case import Case


def tried(case: Case) -> list[Trial]:
    """All that was tried: what people say, and what two runs show."""
    return [*(trial for trial in case.trials if not trial.seen), *case.experiments]


def effective(case: Case) -> list[Trial]:
    """What helped; a change that is reported both ways counts as neither."""
    return [t for t in tried(case) if t.outcome == "helped" and not _disputed(case, t)]


def ruled_out(case: Case, cause: str) -> Trial | None:
    """The trial that speaks against a cause: its remedy did not help, or the job works where the cause would act."""
    return next((trial for trial in tried(case) if _speaks_against(case, trial, cause)), None)


def _speaks_against(case: Case, trial: Trial, cause: str) -> bool:
    from whichrank.facts.interventions import ONE_HOST, interventions

    change = interventions()[trial.change]
    against = "helped" if trial.change == ONE_HOST else "did not help"
    done = not change.unless or change.unless not in case.index.sightings
    return trial.outcome == against and cause in change.refuted and done and not _disputed(case, trial)


def without_failed_trials(sightings: Sequence[KnownMessage]) -> list[KnownMessage]:
    """Without what people say about a change that did nothing: it does not speak for the cause that it would fix."""
    return [s for s in sightings if not _is_a_failed_trial(s)]


def _is_a_failed_trial(sighting: KnownMessage) -> bool:
    """Whether people say it, or a program does it, and it did nothing."""
    from whichrank.facts.interventions import did_nothing
    from whichrank.facts.messages import REPORT, signatures

    signature = signatures()[sighting.signature]
    return (signature.library == REPORT or signature.role == "activity") and did_nothing(sighting.words)


def _disputed(case: Case, trial: Trial) -> bool:
    return len({t.outcome for t in tried(case) if t.change == trial.change and t.outcome != "unknown"}) > 1


def said_category(case: Case) -> Symptom | None:
    """What people say that the job does; the title counts double, a tie says nothing. Of a sentence that says that it
    hangs and that something fails, the hang counts: it fails to connect, or because it waited too long."""
    weights: dict[Symptom, int] = {}
    hangs = {complaint.ref for complaint in case.complaints if complaint.category == "hang"}
    for complaint in case.complaints:
        if complaint.category == "crash" and complaint.ref in hangs:
            continue
        weights[complaint.category] = weights.get(complaint.category, 0) + complaint.weight
    ordered = sorted(weights.items(), key=lambda pair: -pair[1])
    if not ordered or (len(ordered) > 1 and ordered[0][1] == ordered[1][1]):
        return None
    return ordered[0][0]
