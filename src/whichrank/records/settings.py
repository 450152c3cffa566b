"""Environment variables as somebody set them: in a script, a manifest, a program, a live process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from msgspec import Struct, field

from whichrank.model.evidence import Ref
from whichrank.model.findings import CodePlace, Finding, Grade, Severity, Subject
from whichrank.records.launches import Launch

How = Literal["export", "local", "conf", "image", "build", "manifest", "python", "process"]
"""export: reaches child processes; local: a shell variable that was not exported; build: only while an
image is built; process: the environment of a process as captured."""


UNKNOWN = "\0"
"""Stands in a value for the part that is not known."""


class Assignment(NamedTuple):
    """One variable that is set in one place."""

    name: str
    value: str | None
    """None where only running the code would tell."""
    ref: Ref
    scope: str
    """Which environment it goes to: settings of one scope meet in one process."""
    how: How
    used: bool = False
    """The file itself refers to it (`$NAME`): it may be a helper variable of the script."""
    sure: bool = True
    """False inside a branch: it may not be set, and something else instead."""
    value_ref: Ref | None = None
    """Where the value stands, if not on the line of the name."""
    partial: str = ""
    """The value with UNKNOWN in the place of what only running the code would tell, where that is a part of it."""
    way: str = ""
    """The alternative that it belongs to (a branch, a preset, a target, a component); empty for what always holds, and
    for what holds unless somebody asks for something else. Settings of two alternatives never meet."""
    asked: bool = False
    """Somebody has to ask for that alternative."""

    def meets(self, other: Assignment) -> bool:
        """Both may hold at the same time."""
        return not self.way or not other.way or self.way == other.way


class Late(NamedTuple):
    """A variable that is set after it was read."""

    assignment: Assignment
    event: str
    """What came before: "the process group is made"."""
    event_ref: Ref
    sure: bool = True
    """False where it may have been in time, or works for a part of the job."""


class Lost(NamedTuple):
    """A line that was meant to set something and does not, because of how the format is read."""

    name: str
    ref: Ref
    why: str
    fix: str
    severity: Severity = "warning"


MEETING, SIZE = "rendezvous-endpoint", "world-size-mismatch"
"""Causes for which most launches fail that don't fit together."""


class Clash(NamedTuple):
    """Something that the launch asks for and that does not fit together."""

    name: str
    ref: Ref
    why: str
    fix: str
    also: tuple[Ref, ...] = ()
    severity: Severity = "warning"
    cause: str = ""
    """Of the taxonomy, where a job that is launched so fails for it."""


class Baked(NamedTuple):
    """A configuration file that an image carries."""

    path: str
    ref: Ref


class ObservedWait(NamedTuple):
    """How long an operation stayed open: the time that a timeout is measured against."""

    what: str
    """"all_reduce", or a word of the user's for a gap: "checkpoint"."""
    group: str
    seconds: float
    timeout_s: float | None
    ended: bool
    """False for the operation that never ended; its time is how long it had waited."""
    ref: Ref


class SettingsFile(Struct):
    """What one input said."""

    label: str
    kind: str
    assignments: list[Assignment]
    late: list[Late]
    lost: list[Lost]
    baked: list[Baked]
    note: str = ""
    unread: bool = False
    """Nothing of it could be read: it must not count as clean."""
    torch: tuple[int, ...] = ()
    """The version that the file itself pins, by an image tag or an installation; of the whole file."""
    nccl: tuple[int, ...] = ()
    pinned: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    """The same for single scopes: torch and NCCL of a container or an image stage."""

    clashes: list[Clash] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    production: set[str] = field(default_factory=set)
    """Scopes that a production job runs in; the label of the file for all of it."""
    trial: bool = False
    """It is for debugging or tests, by its name or its comments."""
    trial_lines: set[int] = field(default_factory=set)
    """Lines of settings in a part of it that is, such as a target `debug:`."""
    trial_scopes: set[str] = field(default_factory=set)
    """Scopes of programs that measure or test: nccl-tests, a check before the job."""
    containers: list[tuple[str, str, str]] = field(default_factory=list)
    """Scope, image and job of each container."""
    rocm: bool = False
    """It is for GPUs of AMD: RCCL reads NCCL's variables there, with limits of its own."""
    told_devices: frozenset[str] = frozenset()
    """RDMA devices with long numbers that its comments name."""
    included: dict[str, bool] = field(default_factory=dict)
    """Files that it sources -> whether their variables are exported by that."""

    def add(self, other: SettingsFile) -> None:
        """Take over what a file inside this one set."""
        self.assignments += other.assignments
        self.late += other.late
        self.lost += other.lost
        self.baked += other.baked
        self.clashes += other.clashes
        self.launches += other.launches
        self.torch, self.nccl = self.torch or other.torch, self.nccl or other.nccl

    @classmethod
    def empty(cls, label: str, kind: str) -> SettingsFile:
        return cls(label, kind, [], [], [], [])


class Settings(Struct, frozen=True):
    """All inputs together, and what is known of the place where they apply; what the rules judge."""

    files: tuple[SettingsFile, ...]
    torch: tuple[int, ...] = ()
    """Version at hand; empty where nobody said."""
    nccl: tuple[int, ...] = ()
    purpose: str = ""
    interfaces: frozenset[str] | None = None
    """Network interfaces of the host where this applies; None where that is not this host."""
    hcas: frozenset[str] | None = None
    waits: tuple[ObservedWait, ...] = ()

    def versions(self, assignment: Assignment) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """torch and NCCL where this assignment applies: as the user says, else as its file pins them."""
        if self.torch or self.nccl:
            return self.torch, self.nccl
        file = next((f for f in self.files if f.label == assignment.ref.source), None)
        if file is None:
            return (), ()
        torch, nccl = file.pinned.get(assignment.scope, ((), ()))
        return torch or file.torch, nccl or file.nccl

    def assignments(self) -> Iterator[Assignment]:
        """Those that can reach a rank."""
        for file in self.files:
            yield from (a for a in file.assignments if a.how != "build")

    def scopes(self) -> Iterator[dict[str, Assignment]]:
        """For each environment its variables, without those that nobody has asked for; the last assignment of a name
        stands."""
        together: dict[str, dict[str, Assignment]] = {}
        for assignment in self.assignments():
            if not assignment.asked:
                together.setdefault(assignment.scope, {})[assignment.name] = assignment
        yield from together.values()


def flagged(
    code: str, assignment: Assignment, severity: Severity, message: str, *fix: str, also: tuple[Ref, ...] = ()
) -> Finding:
    """A finding about one assignment."""
    rank, host = assignment.ref.rank, assignment.ref.host
    return Finding(
        code=code,
        cause="wrong-environment",
        category="config",
        severity=severity,
        grade=Grade.PROVES,
        kind="settings",
        subject=Subject(
            ranks=() if rank is None else (rank,), hosts=() if host is None else (host,), code=_places(assignment.ref)
        ),
        message=message,
        evidence=(assignment.ref, *((assignment.value_ref,) if assignment.value_ref else ()), *also),
        fix=fix,
    )


def _places(ref: Ref) -> tuple[CodePlace, ...]:
    """The line of the file, where the reference is to one; a captured environment has none."""
    where, _, line = ref.locator.rpartition(" ")
    return (CodePlace(ref.source, int(line)),) if where == "line" and line.isdecimal() else ()
