"""`/dev/shm` of a host or container is tiny or full.

## What it finds
A shared-memory file system of 64 MiB or less, or one without free space, where the job failed.

## Why it happens
Containers get 64 MiB by default; NCCL and data loaders need far more; segments of killed runs stay behind.

## How it decides
By df or the list of mounts. With words about shared memory or a bus error in the job's output it is the cause; in a
job that failed otherwise it is offered with little confidence; in a job that runs it is a remark.

## Example
`shm  64M  64M  0  100% /dev/shm`

## Limits
df on the host does not show a container's own /dev/shm.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from whichrank.facts.fixes import fix
from whichrank.model.evidence import Ref
from whichrank.model.findings import Finding, Grade, NotEvaluated, Subject
from whichrank.records.events.launchers import ElasticFailure, ProcessExit
from whichrank.records.events.processes import DataloaderWorkerDied, NativeCrash
from whichrank.records.host import HostState
from whichrank.rules import building, hardware_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import kernel_events, shared_memory, statements

CODE = "HOST151"
CAUSE = "shm-too-small"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=fix(CAUSE),
)
_PLACE = shared_memory.SHM
_SMALL = 64 << 20
_SIZE = re.compile(r"\bsize=(\d{1,18})([kKmMgG]?)")
_SCALE = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def judge(case: Case) -> list[Finding] | NotEvaluated:
    seen = [(s, place) for s in case.hardware.hosts if (place := _shm(s)) is not None]
    if not seen:
        return NotEvaluated("df -h /dev/shm, or mount, of the hosts")
    poor = [(s, *place) for s, place in seen if place[0] <= _SMALL or place[1] == 0]
    if not poor:
        return []
    state, size, free, ref = poor[0]
    words = [s for s in statements.said(case, "No space left on device", "shared memory", "Bus error") if _about(s)]
    killed = [s for s in statements.of_kind(case, NativeCrash, DataloaderWorkerDied) if _bus(s)]
    signs = statements.first_to_fail([*words, *killed])
    weight = kernel_events.state_weight(case)
    if not signs and weight.severity == "error":
        weight = replace(weight, severity="warning")
    ranks = statements.unless_all(case, statements.ranks_of(signs))
    what = f"has {size >> 20:,} MiB" + (" and is full" if free == 0 else "")
    message = f"{_PLACE}{' of ' + state.host if state.host else ''} {what}."
    subject = Subject(ranks=ranks, hosts=(state.host,) if state.host else ())
    sure = Grade.PROVES if signs else Grade.HINTS
    refs = [ref, *building.refs(signs)]
    return [hardware_findings.found(case, _CLAIM, refs, message, sure, weight=weight, subject=subject)]


def _shm(state: HostState) -> tuple[int, int | None, Ref] | None:
    """Size and free bytes of /dev/shm, and where that stands."""
    for row in state.file_systems:
        if row.path == _PLACE and not row.inodes and row.size is not None:
            quote = f"{row.device} {row.size >> 20} MiB, {row.used_percent} % used, {_PLACE}"
            return row.size, row.free, replace(state.ref, locator=f"line {row.line}", quote=quote)
    match = _SIZE.search(state.mounts.get(_PLACE, ""))
    if match:
        return int(match[1]) * _SCALE[match[2].lower()], None, state.cite(f"mount {_PLACE}")
    return None


def _about(sign: statements.Statement) -> bool:
    return shared_memory.about_shared_memory(sign) or "Bus error" in sign.text


def _bus(sign: statements.Statement) -> bool:
    return (
        isinstance(sign.event, NativeCrash | ProcessExit | ElasticFailure | DataloaderWorkerDied)
        and sign.event.signal == 7
    )
