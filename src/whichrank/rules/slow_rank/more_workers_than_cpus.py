"""The late host alone has fewer CPUs than its data loaders start workers.

## What it finds
A host whose ranks are late by their own timings, and on which alone torch warns that a data loader starts more workers
than the process may use CPUs.

## Why it happens
A smaller machine, a CPU quota or a mask of CPUs on one host of several that should be alike: its workers share a few
CPUs, its ranks wait for data, and all others wait for them.

## How it decides
By torch's warning (`Our suggested max number of worker in current system is 4`) on the host of which all ranks need far
more time for their data, their work or their steps than those of the other hosts, and on no other.

## Example
`This DataLoader will create 12 worker processes in total. Our suggested max number of worker in current system is 4`

## Fix
Compare `nproc` and the cgroup's `cpu.max` with those of another host; give it as many CPUs, or start fewer workers.

## Limits
Ranks without timings of their own are not known to be late.
"""

from __future__ import annotations

from msgspec.structs import replace

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.rules import building, wording
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.identity.who import short_name
from whichrank.timeline.job_state import known_messages, measured

CODE = "SLOW209"
CAUSE = "cpu-starved"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="slow",
    fix=(
        "Compare the CPUs of that host with those of another (nproc, the cgroup's cpu.max), and give it as many.",
        "Or start fewer data-loader workers there.",
    ),
    alternatives=(("input-bound", "its data may come from a slower place"),),
    next=(NextStep("nproc; cat /sys/fs/cgroup/cpu.max", "shows the CPUs that the job may use", (CAUSE,), "none"),),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not case.rank_values:
        return NotEvaluated("times or rates by rank")
    warned = known_messages.seen(case, "torch-too-many-workers")
    hosts = {short_name(s.sign.host) for s in warned if s.sign.host}
    if len(hosts) != 1:
        return []
    homes = {rank: process.host for rank, process in case.people.by_rank.items() if process.host}
    for late in measured.slow(case.rank_values, homes):
        where = measured.hosts_of(case, late.members)
        if late.quantity in ("data", "work", "step") and {short_name(host) for host in where} == hosts:
            ranks = measured.ranks_of(case, late.members)
            message = (
                f"{where[0]} alone has fewer CPUs than its data loaders start workers, and its ranks are late: "
                f"{late.name} takes {late.told()} the others ({wording.ranks_text(ranks)})."
            )
            found = building.found(case, _CLAIM, [s.sign for s in warned], message, Grade.SUPPORTS, ranks)
            subject = Subject(ranks=ranks, hosts=where)
            return [replace(found, subject=subject, evidence=(*found.evidence, *late.refs)[:6])]
    return []
