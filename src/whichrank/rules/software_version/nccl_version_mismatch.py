"""Ranks or hosts run different NCCL versions.

## What it finds
NCCL's own refusal of a peer with another version, or logs that show different versions in one job.

## Why it happens
Different images or environments on the hosts, a library path that finds a system's NCCL on one of them.

## How it decides
NCCL (2.23 and later) says it; else the versions that each process printed are compared, and the minority's hosts
are named.

## Example
`Mismatched NCCL version detected : rank 0 version 22803 rank 8 version 22105`

## Fix
Use one image, or one NCCL, on every host; check `LD_LIBRARY_PATH` and `LD_PRELOAD` there.

## Limits
NCCL prints its version on one rank only unless `NCCL_DEBUG=VERSION` or more is set everywhere.
"""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from whichrank.model.evidence import Ref
from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.records.events.communication import NcclError
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.reported_mismatches import minority
from whichrank.timeline.job_state import kernel_events, statements
from whichrank.timeline.job_state import versions as versions_of_hosts
from whichrank.timeline.job_state.statements import Statement

CODE = "SOFT101"
CAUSE = "nccl-version-mismatch"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Use the same image or the same NCCL package on every host.",
        "Check that LD_LIBRARY_PATH and LD_PRELOAD find no other libnccl there.",
    ),
    next=(
        NextStep(
            "python -c 'import torch; print(torch.cuda.nccl.version())'",
            "on every host: prints the version that is loaded",
            ("nccl-version-mismatch", "nccl-library-conflict"),
            "none",
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.nccl and not statements.heard(case):
        return building.SILENT
    told = statements.said(case, "Mismatched NCCL version detected")
    versions = {
        p.label: (p.version.split("+")[0], p) for p in case.nccl if p.version is not None and p.host is not None
    }
    counts = Counter(version for version, _ in versions.values()).most_common()
    if not told and len(counts) < 2:
        return _in_errors(case) or _installed(case)
    odd = [p for version, p in versions.values() if version != counts[0][0]] if len(counts) > 1 else []
    clear = len(counts) > 1 and counts[0][1] > sum(count for _, count in counts[1:])
    hosts = tuple(sorted({p.host for p in odd if p.host})) if clear else ()
    shown = [
        Statement(
            f"NCCL version {v}", Ref(p.source, f"line {p.first_line}", f"NCCL version {v}", None, p.host), host=p.host
        )
        for v, p in sorted(versions.values(), key=lambda pair: pair[0])
    ]
    signs = [*told, *(_one_of_each(shown) if len(counts) > 1 else [])]
    names = " and ".join(version for version, _ in counts[:3])
    # Where no step was made, every exception follows from it.
    at_start = kernel_events.failed(case) and not any(len(p) > 1 for p in case.progress)
    detail = names if len(counts) > 1 else building.short(told[0].text)
    finding = building.found(
        case,
        _CLAIM,
        signs,
        f"The ranks run different NCCL versions: {detail}.",
        Grade.PROVES if told or at_start else Grade.SUPPORTS,
    )
    # Who notices prints it, and that may be either side: the odd version is what tells.
    ranks = tuple(sorted({rank for host in hosts for rank in case.people.ranks_on(host)}))
    return [replace(finding, subject=replace(finding.subject, hosts=hosts, ranks=ranks))]


def _in_errors(case: Case) -> list[Finding]:
    """By the version that torch names where a call of NCCL fails."""
    told = [event for event in case.events(NcclError) if event.version]
    first = {event.version: event for event in reversed(told)}
    if len(first) < 2:
        return []
    odd = minority({event.rank: event.version for event in told if event.rank is not None})
    signs = [Statement(f"NCCL version {v}", e.ref, e.rank, host=e.host) for v, e in sorted(first.items())]
    message = f"The ranks run different NCCL versions: {' and '.join(sorted(first)[:3])}."
    finding = building.found(case, _CLAIM, signs, message, Grade.SUPPORTS)
    return [replace(finding, subject=replace(finding.subject, ranks=odd))]


def _installed(case: Case) -> list[Finding]:
    """By what hosts say that they install or run, where the job failed."""
    packages = versions_of_hosts.nccl_by_host(case)
    counts = Counter(version for version, _ in packages.values()).most_common()
    if len(counts) < 2 or not kernel_events.failed(case):
        return []
    odd = versions_of_hosts.odd(packages)
    signs = [Statement(ref.quote, ref, host=host) for host, (_, ref) in (odd or packages).items()]
    names = " and ".join(version for version, _ in counts[:3])
    finding = building.found(case, _CLAIM, signs, f"The hosts have different NCCL versions: {names}.", Grade.SUPPORTS)
    ranks = tuple(sorted(rank for host in odd for rank in case.people.ranks_on(host)))
    return [replace(finding, subject=replace(finding.subject, hosts=tuple(sorted(odd)), ranks=ranks))]


def _one_of_each(signs: list[Statement]) -> list[Statement]:
    return list({sign.text: sign for sign in signs}.values())
