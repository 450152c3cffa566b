"""One answer where the evidence holds several jobs: each is judged, and the one that matters is told first."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from whichrank.model.verdict import Diagnosis, Verdict
from whichrank.timeline.case import Case

_WELL = ("healthy",)


def together(answers: Sequence[tuple[Case, Diagnosis]], names: Sequence[str], asked: str = "") -> Diagnosis:
    """The answer for the job that somebody asks about, by a note beside; else for the newest, or of those that ran at
    the same time for the one that failed; the others as incidents."""
    spans = [_span(case) for case, _ in answers]
    newest = max(range(len(answers)), key=lambda i: (spans[i][1], i))
    beside = [i for i in range(len(answers)) if _overlap(spans[i], spans[newest])]
    meant = [i for i, name in enumerate(names) if name in asked]
    if len(meant) == 1:
        beside = meant
    chosen = max(beside, key=lambda i: (_matters(answers[i][1].verdict), spans[i][1], -i))
    others = [i for i in range(len(answers)) if i != chosen]
    main = answers[chosen][1]
    told = f"Job {names[chosen]}: {main.verdict.summary}"
    note = f" The evidence holds {len(answers)} jobs; each was judged by itself."
    incidents = [_named(answers[i][1].verdict, names[i]) for i in others]
    sources = {(s.path, s.reader): s for _, answer in answers for s in answer.coverage.sources}
    return replace(
        main,
        verdict=replace(main.verdict, summary=told + note),
        incidents=(*main.incidents, *incidents),
        coverage=replace(main.coverage, sources=tuple(sources.values())),
    )


def _named(verdict: Verdict, name: str) -> Verdict:
    return replace(verdict, summary=f"Job {name}: {verdict.summary}")


def _matters(verdict: Verdict) -> float:
    """A failure that is explained matters more than one that is not, and both more than a job that goes well."""
    return -1.0 if verdict.cause in _WELL else verdict.confidence if verdict.cause != "unknown" else -0.5


def _span(case: Case) -> tuple[int, int]:
    """First and last sign of life."""
    times = [event.time_ns for event in case.log_events if event.time_ns]
    times += [int(t) for progress in case.progress for t in progress.time_ns if t]
    times += [s.time_ns for s in case.sightings if s.time_ns]
    return (min(times), max(times)) if times else (0, 0)


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]
