"""Findings on hardware: whose GPU it is, how that is said, and the finding itself."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from whichrank.model.evidence import Ref
from whichrank.model.findings import Alternative, Category, Finding, Gpu, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.hardware import GpuState, KernelEvent
from whichrank.rules import building, wording
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import statements
from whichrank.timeline.job_state.kernel_events import Weight

NO_KERNEL_LOG = NotEvaluated("the kernel log of the hosts (dmesg, journalctl -k)")
NO_GPU_STATE = NotEvaluated("the kernel log or nvidia-smi -q of the hosts")

_MOST_REFS = 5

# -- who


def gpu_text(case: Case, host: str | None, device: str, gpu: Gpu | None = None) -> str:
    """`GPU 3 (0000:17:00) of node7 (rank 11)`."""
    found = gpu or case.hardware.gpu(host, device)
    place = f" ({device})" if device else ""
    name = f"GPU {found.index}{place}" if found else f"The GPU at {device}" if device else "A GPU"
    ranks = case.hardware.ranks_on(host, device) or case.hardware.ranks_at(host, found.index if found else None)
    whose = f", used by {wording.ranks_text(ranks)}" if ranks else ""
    return f"{name}{' of ' + host if host else ''}{whose}"


def subject_of(case: Case, events: Sequence[KernelEvent]) -> Subject:
    """The GPUs of these events, their hosts and the ranks on them."""
    hosts = tuple(dict.fromkeys(e.host for e in events if e.host))
    gpus = tuple(dict.fromkeys(g for e in events if (g := case.hardware.gpu(e.host, e.device)) is not None))
    ranks = sorted({r for e in events for r in case.hardware.ranks_on(e.host, e.device, e.pid)})
    return Subject(ranks=tuple(ranks), hosts=hosts, gpus=gpus)


def state_subject(case: Case, state: GpuState) -> Subject:
    ranks = case.hardware.ranks_on(state.host, state.bus_id or state.uuid or "")
    ranks = ranks or case.hardware.ranks_at(state.host, state.index)
    gpus = (Gpu(state.host or "", state.index, state.uuid),) if state.index is not None else ()
    return Subject(ranks=ranks, hosts=(state.host,) if state.host else (), gpus=gpus)


def state_text(case: Case, state: GpuState) -> str:
    gpu = Gpu(state.host or "", state.index, state.uuid) if state.index is not None else None
    return gpu_text(case, state.host, state.bus_id or state.uuid or "", gpu)


_SIBLINGS = 4


def most_of(states: Sequence[GpuState], key: str) -> Callable[[GpuState], float | None]:
    """What a GPU should show: its own maximum, or else what most GPUs of its model in this case show."""
    models: dict[str, list[float]] = {}
    for state in states:
        if (value := state.number(key)) is not None:
            models.setdefault(state.values.get("name", ""), []).append(value)
    usual = {name: statistics.median(values) for name, values in models.items() if len(values) >= _SIBLINGS}

    def most(state: GpuState) -> float | None:
        own = state.number(f"{key}_max")
        return own if own is not None else usual.get(state.values.get("name", ""))

    return most


# -- the finding


class Claim(Struct, frozen=True):
    """What a rule says, whoever is meant."""

    code: str
    cause: str
    category: Category = "crash"
    fix: tuple[str, ...] = ()
    alternatives: tuple[tuple[str, str], ...] = ()
    next: tuple[NextStep, ...] = ()


def found(  # noqa: PLR0913
    case: Case,
    claim: Claim,
    refs: Sequence[Ref],
    message: str,
    grade: Grade,
    *,
    weight: Weight,
    subject: Subject,
    onset_ns: int | None = None,
    fix: tuple[str, ...] = (),
) -> Finding:
    """A finding, no surer and no graver than its weight allows."""
    ranked = tuple(rank_ref(ref, subject) for ref in dict.fromkeys(refs))
    return Finding(
        code=claim.code,
        cause=claim.cause,
        category="hang" if claim.category == "crash" and statements.only_hangs(case) else claim.category,
        severity=weight.severity,
        grade=grade.lowered(weight.less),
        subject=subject,
        message=message,
        evidence=ranked[:_MOST_REFS],
        fix=fix or claim.fix,
        victims=tuple(r for r in range(case.world) if r not in subject.ranks) if subject.ranks else (),
        alternatives=tuple(Alternative(*other) for other in claim.alternatives),
        next=claim.next,
        onset_ns=onset_ns,
        kind="host",
    )


def rank_ref(ref: Ref, subject: Subject) -> Ref:
    """A quote with its rank, where only one is meant."""
    return replace(ref, rank=subject.ranks[0]) if ref.rank is None and len(subject.ranks) == 1 else ref


def aside(case: Case, events: Sequence[KernelEvent], weight: Weight) -> str:
    """What must be said of an event that accuses nobody, or that is known only by another."""
    named = events[0].number("named_by") if events else None
    said = f" The log has only the Xid {named} that follows from it." if named is not None else ""
    if weight.severity != "info" or not events:
        return said
    when = case.hardware.when(events[0])
    if when in ("before", "after"):
        return f"{said} This was {when} the run."
    return f"{said} Nothing in the job's own evidence shows that it was harmed, or when this was."


def names(case: Case, ranks: tuple[int, ...]) -> str:
    """As `building.who`."""
    return building.who(case, ranks)


def value_ref(state: GpuState, words: str) -> Ref:
    """A value of a GPU as evidence."""
    where = state.bus_id or state.uuid or (f"GPU {state.index}" if state.index is not None else "GPU")
    return replace(state.ref, quote=f"{where}: {words}"[:400])
