"""GPUDirect RDMA is not in use.

## What it finds
Adapters that can not register GPU memory, a missing peer-memory module, and NCCL that says it goes through host
memory.

## Why it happens
nvidia-peermem is not loaded or was built for another driver, the kernel lacks DMA-BUF, or GPU and adapter are too far
apart for the level.

## How it decides
Registration that fails is an error. That NCCL switched GPUDirect off counts only where the job is said to be slow. A
host whose connections over InfiniBand all go without it, while other hosts use it, is set up differently. Where no
connection uses it and a run of nccl-tests is said to be slow, that is a hint.

## Example
`NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0' (no module)`

## Fix
Load nvidia-peermem of the running driver (reinstall the GPU driver after the adapter driver), or use a kernel and
driver with DMA-BUF.

## Limits
On machines without the hardware for it nothing is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from whichrank.model.evidence import Ref
from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.events.launchers import JobEnded
from whichrank.records.events.run_state import RunFinished
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements, trials
from whichrank.timeline.job_state.outcome import failures

CODE = "RDMA211"
CAUSE = "gdr-disabled"

_FIX = (
    "Load nvidia-peermem of the running driver (reinstall the GPU driver after the adapter's), or use DMA-BUF.",
    "Place ranks on the adapters near their GPUs: nvidia-smi topo -m.",
)
_NEXT = (NextStep("lsmod | grep peermem; nvidia-smi topo -m", "shows the module and the distances", (CAUSE,), "none"),)
_FAILED = Claim(CODE, CAUSE, fix=_FIX, blames="host", next=_NEXT)
_NOTED = Claim(CODE, CAUSE, fix=_FIX, blames="host", next=_NEXT, category="slow", severity="warning")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    told = known_messages.of_cause(case, CAUSE)
    if any(s.signature.role == "root" for s in told):
        return [
            building.tell_of(
                case,
                _FAILED,
                "The adapter of {who} can not reach GPU memory: {what}.",
                told,
                known_messages.grade(told),
            )
        ]
    if without := _without(case):
        return [_differs(case, without)]
    noted = known_messages.seen(case, "nccl-gdr-disabled")
    measured = _is_benchmark(case) and trials.said_category(case) == "slow"
    if not noted and measured and (nowhere := _nowhere(case)):
        return [nowhere]
    slow = known_messages.seen(case, "told-slow") or trials.said_category(case) == "slow" or _is_benchmark(case)
    if not noted or not slow:
        return []
    return [
        building.tell_of(case, _NOTED, "{who} sends through host memory: {what}.", noted, known_messages.grade(noted))
    ]


def _is_benchmark(case: Case) -> bool:
    """Whether the run was one of nccl-tests: then speed is what it is about."""
    return any("Out of bounds values" in event.ref.quote for event in case.events(RunFinished))


def _without(case: Case) -> dict[str, Ref]:
    """Hosts with connections over InfiniBand of which none uses GPUDirect, where other hosts' do."""
    ways = _over_ib(case)
    without = {host: some[0][1] for host, some in ways.items() if not any(gdr for gdr, _ in some)}
    return without if 0 < len(without) < len(ways) else {}


def _over_ib(case: Case) -> dict[str, list[tuple[bool, Ref]]]:
    """By host its connections over InfiniBand: whether each uses GPUDirect, and where that stands."""
    ways: dict[str, list[tuple[bool, Ref]]] = {}
    for process in case.nccl:
        for way in process.transports:
            if process.host and way.kind == "NET/IB":
                said = f"{way.src} -> {way.dst} [{way.direction}] via NET/IB{'/GDRDMA' if way.gdr else ''}"
                ref = Ref(process.source, f"line {way.line}", said, None, process.host)
                ways.setdefault(process.host, []).append((way.gdr, ref))
    return ways


def _nowhere(case: Case) -> Finding | None:
    """No connection over InfiniBand uses GPUDirect."""
    ways = [way for some in _over_ib(case).values() for way in some]
    if not ways or any(gdr for gdr, _ in ways):
        return None
    message = "No connection over InfiniBand uses GPUDirect RDMA: all go through host memory."
    return _slow(message, [ref for _, ref in ways[:2]], Grade.HINTS)


def _differs(case: Case, without: dict[str, Ref]) -> Finding:
    cancelled = _cancelled_at_work(case)
    grade = Grade.SUPPORTS if cancelled or trials.said_category(case) == "slow" else Grade.HINTS
    hosts = tuple(sorted(without))
    message = f"Without GPUDirect RDMA: {', '.join(hosts)}; other hosts of the job use it."
    finding = _slow(message, [without[host] for host in hosts][:4], grade, hosts)
    return replace(finding, severity="error") if cancelled else finding


def _cancelled_at_work(case: Case) -> bool:
    """Whether somebody stopped a job that did its steps and in which nothing had failed: it was not worth its time."""
    ended = case.events(JobEnded)
    others = [event for event in failures(case) if not isinstance(event, JobEnded)]
    by_hand = bool(ended) and all(event.reason.upper() in ("", "CANCELLED") for event in ended)
    return by_hand and known_messages.has_run(case) and not others and not case.stands_still


def _slow(message: str, refs: Sequence[Ref], grade: Grade, hosts: tuple[str, ...] = ()) -> Finding:
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="slow",
        severity="warning",
        grade=grade,
        subject=Subject(hosts=hosts),
        message=message,
        evidence=tuple(refs),
        fix=_FIX,
        next=_NEXT,
    )
