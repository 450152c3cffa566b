"""A whole host stopped answering.

## What it finds
A scheduler that reports a failed node, or an elastic agent whose heartbeat the others miss.

## Why it happens
A crash of the kernel, power, a lost network, a machine taken away.

## How it decides
The scheduler's `NODE FAILURE`, or the rendezvous that removes a node for want of a heartbeat. Ranks on that host
are named where it is known which they are.

## Example
`… the node(s) node7_1234_0 have been removed from the rendezvous 'job' since they had no heartbeat.`

## Fix
Drain the host, look at its kernel log and its management controller, and start again without it.

## Limits
An agent that was stopped or starved of CPU misses its heartbeat as well.
"""

from __future__ import annotations

import re
from dataclasses import replace

from whichrank.model.findings import Finding, NextStep, NotEvaluated
from whichrank.records.log import LogEvent
from whichrank.rules import crashes
from whichrank.rules.crashes import Claim
from whichrank.timeline.case import Case

CODE = "HOST105"
CAUSE = "host-lost"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Drain that host and start again without it.",
        "Read its kernel log and its management controller's events: power, machine checks, a lost network.",
    ),
    blames="host",
    alternatives=(("rank-frozen", 0.1, "an agent that was stopped misses its heartbeat too"),),
    next=(NextStep("ping HOST; ssh HOST uptime", "tells whether it is down or was restarted", ("host-lost",), "none"),),
)
# The agent's own name for a node: address, pid and a number.
_NODES = re.compile(r"\b([\w.-]{1,253}?)_(\d{1,10})_\d{1,6}\b")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not crashes.heard(case):
        return crashes.SILENT
    failed = [e for e in crashes.events(case, "job_ended") if "NODE FAIL" in e.text("reason").upper()]
    silent = [e for e in crashes.events(case, "rendezvous_error") if e.text("class") == "no_heartbeat"]
    lost = failed or silent
    if not lost:
        return []
    hosts = tuple(sorted({host for event in lost for host in _hosts(event)}))
    ranks = tuple(sorted(r for r, p in case.people.by_rank.items() if p.host is not None and p.host in hosts))
    where = ", ".join(hosts) if hosts else "A host"
    how = "the scheduler reports a node failure" if failed else "its agent sent no heartbeat any more"
    signs = [crashes.sign(case, event) for event in lost]
    finding = crashes.found(case, _CLAIM, signs, f"{where} stopped answering: {how}.", 0.85 if failed else 0.7, ranks)
    return [_with_hosts(finding, hosts)]


def _hosts(event: LogEvent) -> list[str]:
    if event.kind == "job_ended":
        return [event.host] if event.host and "[" not in event.host and "," not in event.host else []
    return [match[1] for match in _NODES.finditer(event.text("reason") or event.ref.quote)]


def _with_hosts(finding: Finding, hosts: tuple[str, ...]) -> Finding:
    return replace(finding, subject=replace(finding.subject, hosts=hosts or finding.subject.hosts))
