"""The answer: one verdict, and all that a reader needs beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field

from whichrank.model.evidence import Coverage, Ref
from whichrank.model.findings import (
    Alternative,
    Category,
    CodePlace,
    Finding,
    Grade,
    Hold,
    Kind,
    NextStep,
    Subject,
    Witness,
)

if TYPE_CHECKING:
    from whichrank.model.views import Context, Moment, StackNode, Track

RankState = Literal["running", "waiting", "stuck", "frozen", "dead", "absent", "unknown"]


class Verdict(Struct, frozen=True):
    category: Category
    cause: str
    culprits: Subject
    victims: tuple[int, ...]
    confidence: float
    summary: str
    fix: tuple[str, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    certificate: tuple[Hold, ...] | tuple[Witness, ...] = ()


Phase = Literal[
    "launched", "rendezvous", "groups", "collectives", "training", "evaluation", "checkpoint", "leaving", "ended"
]
"""How far a job came, in this order."""


class Argument(Struct, frozen=True):
    """One thing that speaks for or against a hypothesis."""

    code: str
    """The rule that says so; empty for the state of the job."""
    grade: Grade
    kind: Kind | None
    """None for the state of the job."""
    says: str
    evidence: tuple[Ref, ...] = ()
    phase: Phase | None = None
    """How far the job was when the first of it was written, where its file shows that."""


class Hypothesis(Struct, frozen=True):
    """A cause and who is meant, with all that speaks for it and against it."""

    cause: str
    ranks: tuple[int, ...]
    confidence: float
    arguments_for: tuple[Argument, ...] = ()
    arguments_against: tuple[Argument, ...] = ()


class PhaseSeen(Struct, frozen=True):
    """A phase that the evidence shows."""

    phase: Phase
    ranks: tuple[int, ...]
    """Those that it shows in it; empty where it only shows the job."""
    since: str | None
    evidence: Ref


class ScheduledJob(Struct, frozen=True):
    """The job as its scheduler knows it."""

    kind: str
    id: str
    name: str | None = None
    step: str | None = None
    nodes: tuple[str, ...] = ()
    restarts: int = 0
    """How often it was queued again."""
    ends: str | None = None
    """When its time is over."""


class JobInfo(Struct, frozen=True):
    world_size: int | None = None
    backends: tuple[str, ...] = ()
    torch: str | None = None
    nccl: str | None = None
    attempt: int | None = None
    started: str | None = None
    onset: str | None = None
    hosts: tuple[str, ...] = ()
    scheduler: ScheduledJob | None = None


class Position(Struct, frozen=True):
    """The operation a rank has reached."""

    group: str
    seq: int
    op: str


class RankInfo(Struct, frozen=True):
    rank: int
    host: str | None = None
    pid: int | None = None
    gpu: int | None = None
    coords: dict[str, int] = field(default_factory=dict)
    state: RankState = "unknown"
    at: Position | None = None
    """The operation that it is in."""
    after: Position | None = None
    """The last one that it finished, where it is in none."""
    seen: str | None = None
    """When this was so."""

    @property
    def reached(self) -> Position | None:
        return self.at or self.after


class Diverged(Struct, frozen=True):
    """The first operation of a group that not every member joined."""

    seq: int
    op: str
    joined: tuple[int, ...]
    absent: tuple[int, ...]


class GroupInfo(Struct, frozen=True):
    id: str
    name: str
    desc: str
    ranks: tuple[int, ...]
    last_completed: int | None
    diverged: Diverged | None = None


class Wait(Struct, frozen=True):
    """This rank waits in this operation for those ranks."""

    rank: int
    group: str
    seq: int
    op: str
    waits_for: tuple[int, ...]


class Standing(Struct, frozen=True):
    """Ranks whose stacks are at the same line."""

    place: str
    doing: str
    ranks: tuple[int, ...]


class DifferingValue(Struct, frozen=True):
    """A count or flag of the training code that is not the same on the culprits as on all other ranks."""

    name: str
    place: CodePlace
    value: int | bool
    others: int | bool


class Excerpt(Struct, frozen=True):
    """Lines of the training code around a place that the verdict names."""

    place: CodePlace
    path: str
    first: int
    lines: tuple[str, ...]
    said: tuple[str, ...] = ()
    """What `lint` says of the place: why ranks part here."""


class Diagnosis(Struct, frozen=True):
    """All that `diagnose` has to say; the reports only put it into words."""

    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    consequence_of: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Index of a finding -> indices of the findings it follows from."""
    incidents: tuple[Verdict, ...] = ()
    next: tuple[NextStep, ...] = ()
    job: JobInfo = JobInfo()
    ranks: tuple[RankInfo, ...] = ()
    groups: tuple[GroupInfo, ...] = ()
    waits: tuple[Wait, ...] = ()
    standings: tuple[Standing, ...] = ()
    """Identical stacks together, the most frequent first."""
    differing_values: tuple[DifferingValue, ...] = ()
    excerpts: tuple[Excerpt, ...] = ()
    hypotheses: tuple[Hypothesis, ...] = ()
    """All that were considered, the best first."""
    phases: tuple[PhaseSeen, ...] = ()
    """How far the job came."""
    coverage: Coverage = Coverage()
    tracks: tuple[Track, ...] = ()
    """What each rank did last, for reports that draw it; empty where nobody asked."""
    stacks: tuple[StackNode, ...] = ()
    """The stacks of all ranks merged, for the same reports."""
    moments: tuple[Moment, ...] = ()
    """What happened when and where, in order of time, for the same reports."""
    contexts: tuple[Context, ...] = ()
    """Quoted lines with those around them, for the same reports."""
