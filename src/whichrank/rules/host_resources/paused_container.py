"""A container of the job was paused, or its machine went to sleep.

## What it finds
A container that its runtime paused before the job stood still, and did not unpause; a machine that was suspended.

## Why it happens
A backup that wants a still file system, a commit of the container, an operator; a desktop that saves power. The
processes exist and do not run: nothing that they print says so, and the other ranks wait for them.

## How it decides
By the events of the container runtime: `container pause` without an `unpause` of the same container behind it, in a job
that stood still. If all ranks but one timed out, that one is named. By what systemd and the kernel say of sleep: then
the ranks of that machine are named.

## Example
`podman[23344]: container pause 4be19d02f7ac (image=gan:0.9, name=gan-1)`

## Fix
`podman unpause NAME` or `docker unpause NAME`; let backups leave the containers of running jobs alone.

## Limits
Which ranks run in a container the events do not say.
"""

from __future__ import annotations

from msgspec.structs import replace

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.identity.who import short_name
from whichrank.timeline.job_state import known_messages, statements
from whichrank.timeline.job_state.known_messages import Seen

CODE = "HOST160"
CAUSE = "rank-frozen"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    blames="host",
    fix=("Let it go on: podman unpause NAME, docker unpause NAME.", "Then find who paused it: a backup, a commit."),
    next=(NextStep("podman ps --filter status=paused", "lists what is still paused", (CAUSE,), "none"),),
)

_ASLEEP = replace(
    _CLAIM,
    fix=(
        "Switch automatic suspend off on machines that train: systemctl mask sleep.target suspend.target.",
        "Wake it and start the job again from its last checkpoint.",
    ),
    next=(NextStep("journalctl -u systemd-suspend", "tells when it slept, and who asked for it", (CAUSE,), "none"),),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    if (asleep := known_messages.seen(case, "host-suspended")) and known_messages.stands_still(case):
        return [_suspended(case, asleep)]
    freed = {seen.group("container"): seen.event.line for seen in known_messages.seen(case, "container-unpaused")}
    paused = [
        seen
        for seen in known_messages.seen(case, "container-paused")
        if freed.get(seen.group("container"), -1) < seen.event.line
    ]
    if not paused or not known_messages.stands_still(case):
        return []
    missing = case.ranks_not_timed_out
    ranks = tuple(missing) if len(missing) == 1 else ()
    name = paused[0].group("name") or paused[0].group("container")[:12]
    message = f"The container {name} was paused and did not run again."
    found = building.found(case, _CLAIM, [seen.sign for seen in paused], message, Grade.SUPPORTS, ranks)
    if ranks:
        return [found]
    told = {short_name(seen.sign.host) for seen in paused if seen.sign.host}
    places = {
        node: {node, *case.people.pods.get(node, ())} for node in told & ({*case.people.pods} | case.people.hosts())
    }
    there = tuple(sorted({rank for names in places.values() for name in names for rank in case.people.ranks_on(name)}))
    here = len(there) < case.world and not set(there) & case.ranks_timed_out
    # Who tells of it may be another host than the one where it runs.
    subject = replace(found.subject, hosts=tuple(sorted(places)) if here else (), ranks=there if here else ())
    return [replace(found, subject=subject)]


def _suspended(case: Case, seen: list[Seen]) -> Finding:
    """A machine that sleeps: its ranks are those of which nobody says that they timed out."""
    hosts = tuple(sorted({short_name(s.sign.host) for s in seen if s.sign.host}))
    there = {rank for host in hosts for rank in case.people.ranks_on(host)}
    ranks = tuple(sorted(there - case.ranks_timed_out))
    message = f"{', '.join(hosts) or 'A machine'} went to sleep while the job ran."
    found = building.found(case, _ASLEEP, [s.sign for s in seen], message, Grade.SUPPORTS, ranks)
    return replace(found, subject=replace(found.subject, hosts=hosts))
