"""The limit of locked memory is too small to register buffers.

## What it finds
A limit of locked memory far below what RDMA needs, together with a registration that failed.

## Why it happens
Adapters work on locked memory. Shells that mpirun, ssh or a container starts often have the small default (64 KiB to
8 MiB), whatever an interactive shell shows.

## How it decides
By `ulimit -l` or `/proc/PID/limits`, and by NCCL's or UCX's words: a verbs call that failed with "Cannot allocate
memory". The limit alone accuses nobody: jobs that use no RDMA do not need it. Where other hosts are shown to have more,
all ranks of the host are named: they have the same limit. A warning of libibverbs about RLIMIT_MEMLOCK counts too, if
only ranks that printed it failed: libibverbs prints it for 32 KiB and less.

## Example
`Max locked memory  8388608  8388608  bytes` and `Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory`

## Fix
Set it to unlimited where the ranks start: limits.conf, the unit's LimitMEMLOCK, the scheduler's propagation,
`docker --ulimit memlock=-1`.

## Limits
The limit that was shown may be of another shell than the ranks'.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.host import UNLIMITED
from whichrank.rules import building, hardware_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements
from whichrank.timeline.job_state.kernel_events import Weight

CODE = "RDMA152"
CAUSE = "memlock-ulimit"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Raise it where the ranks start: memlock unlimited in limits.conf, LimitMEMLOCK=infinity, --ulimit memlock=-1.",
        "Check inside the job, not in a login shell: grep 'locked memory' /proc/PID/limits.",
    ),
    next=(
        NextStep(
            "grep 'locked memory' /proc/PID/limits", "shows the limit of the rank itself", ("memlock-ulimit",), "none"
        ),
    ),
)
_TOLD = building.Claim(CODE, CAUSE, fix=_CLAIM.fix, blames="host", next=_CLAIM.next)
_ENOUGH = 1 << 30
"""Register calls of NCCL are of megabytes each; a gibibyte is far above every default."""
_VERBS = ("ibv_reg_mr", "ibv_reg_dmabuf_mr", "ibv_create_cq", "ibv_create_qp", "ibv_alloc_pd", "ibv_open_device")
_NO_MEMORY = ("Cannot allocate memory", "ENOMEM", "errno 12", "error 12")


def _warned(case: Case) -> Finding | None:
    """Where libibverbs itself warned the ranks whose calls failed: it does so from 32 KiB down."""
    warned = known_messages.seen(case, "verbs-memlock") if case.sightings else []
    failed = (
        [s for s in statements.said(case, *_VERBS) if "fail" in s.ref.quote and "ibv_" in s.ref.quote] if warned else []
    )
    ranks = {s.sign.rank for s in warned if s.sign.rank is not None}
    first = [s for s in failed if s.rank is None or s.rank in ranks]
    if not first or {s.rank for s in failed if s.rank is not None} - ranks:
        return None
    signs = [warned[0].sign, *first]
    message = f"Locked memory is limited to {warned[0].group('limit')} bytes: {building.short(first[0].ref.quote)}."
    return building.found(case, _TOLD, signs, message, Grade.SUPPORTS, tuple(sorted(ranks)))


def judge(case: Case) -> list[Finding] | NotEvaluated:
    states = [s for s in case.hardware.hosts if "memlock" in s.limits]
    if warned := _warned(case):
        return [warned]
    if not states:
        return NotEvaluated("limits of the ranks (ulimit -a, /proc/PID/limits)")
    low = [s for s in states if UNLIMITED < s.limits["memlock"] < _ENOUGH]
    refused = [s for s in statements.said(case, *_VERBS) if any(words in s.text for words in _NO_MEMORY)]
    if not low or not refused:
        return []
    signs = statements.first_to_fail(refused)
    hosts, all_hosts = {s.host for s in low}, {s.host for s in states}
    there = {rank for name in hosts if name and hosts < all_hosts for rank in case.people.ranks_on(name)}
    refusing = statements.ranks_of(signs)
    ranks = statements.unless_all(case, tuple(sorted(there)) if there >= set(refusing) else refusing)
    kib = low[0].limits["memlock"] >> 10
    host = low[0].host if len(hosts) == 1 or hosts < all_hosts else None
    where = f" on {host}" if host else ""
    message = f"Locked memory is limited to {kib:,} KiB{where}: memory for the adapter could not be registered."
    subject = Subject(ranks=ranks, hosts=tuple(sorted(name for name in hosts if name)) if host else ())
    refs = [low[0].cite("memlock"), *building.refs(signs)]
    times = [s.time_ns for s in signs if s.time_ns is not None]
    return [
        hardware_findings.found(
            case,
            _CLAIM,
            refs,
            message,
            Grade.PROVES,
            weight=Weight("error"),
            subject=subject,
            onset_ns=min(times, default=None),
        )
    ]
