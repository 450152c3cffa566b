"""What a rule says: a cause, who is meant, and the proof."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from whichrank.model import grades
from whichrank.model.evidence import Ref
from whichrank.model.grades import Grade as Grade  # noqa: PLC0414 - rules take all parts of a finding from here
from whichrank.model.grades import Kind as Kind  # noqa: PLC0414

Severity = Literal["error", "warning", "info"]
Category = Literal["hang", "crash", "slow", "corruption", "config", "healthy", "unknown"]
Disturbance = Literal["none", "pauses", "load", "ends"]


class CodePlace(Struct, frozen=True):
    """A line of the training code, or of a launch file."""

    file: str
    line: int
    function: str = ""
    rank: int | None = None

    def __str__(self) -> str:
        place = f"{self.file.rsplit('/', 1)[-1]}:{self.line}"
        return f"{place} in {self.function}" if self.function else place


class Gpu(Struct, frozen=True):
    """A device of a host."""

    host: str
    index: int
    uuid: str | None = None


class Endpoint(Struct, frozen=True):
    """One side of a link."""

    host: str
    device: str


class Link(Struct, frozen=True):
    """What joins two devices or interfaces."""

    a: Endpoint
    b: Endpoint


class Subject(Struct, frozen=True):
    """Who or what is meant; empty where nobody can be named."""

    ranks: tuple[int, ...] = ()
    """Only those that are certain."""
    hosts: tuple[str, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    links: tuple[Link, ...] = ()
    code: tuple[CodePlace, ...] = ()
    candidates: tuple[int, ...] = ()
    """Where the evidence can't decide: exactly the ranks that fit all of it."""


class Alternative(Struct, frozen=True):
    """Another cause that fits the same evidence. Rules list them by likelihood; the verdict shares out what is left."""

    cause: str
    why: str
    confidence: float = 0.0


class NextStep(Struct, frozen=True):
    """A command that would settle what is open, and what it does to the job."""

    command: str
    why: str
    settles: tuple[str, ...] = ()
    disturbs: Disturbance = "none"


class Hold(Struct, frozen=True):
    """One link of a cycle: this rank holds one operation and waits for another."""

    rank: int
    holds: str
    waits: str
    code: CodePlace | None = None


class Witness(Struct, frozen=True):
    """What one rank had at one step, of something that replicas must have in common."""

    rank: int
    step: int
    module: str
    tensor: str
    value: str


class Finding(Struct, frozen=True):
    """A statement of a rule. Without a proof it can't be made."""

    code: str
    cause: str
    category: Category
    severity: Severity
    grade: Grade
    subject: Subject
    message: str
    evidence: tuple[Ref, ...]
    fix: tuple[str, ...] = ()
    victims: tuple[int, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    next: tuple[NextStep, ...] = ()
    certificate: tuple[Hold, ...] | tuple[Witness, ...] = ()
    onset_ns: int | None = None
    """When the trouble began, on the aligned clock, if the evidence tells."""
    kind: Kind = "messages"
    """The evidence that it rests on."""

    def __post_init__(self) -> None:
        if not self.evidence:
            raise ValueError(f"{self.code}: a finding needs at least one piece of evidence")

    @property
    def confidence(self) -> float:
        return grades.confidence(self.grade, self.kind)


class NotEvaluated(Struct, frozen=True):
    """A rule's answer when it had nothing to judge by."""

    missing: str
