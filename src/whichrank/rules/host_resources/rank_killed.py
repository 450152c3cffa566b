"""A rank was killed by SIGKILL, and the evidence does not show who sent it.

## What it finds
A process that its launcher saw end by signal 9 (exit code -9 or 137), although the launcher had not ended it.

## Why it happens
Most often the kernel's out-of-memory killer or a container's memory limit; else a node agent, a scheduler or a
person.

## How it decides
By the launcher's words alone: a process cannot tell of its own SIGKILL. Processes that the elastic agent told to
end before (it sends SIGKILL thirty seconds after SIGTERM), or that died when the scheduler ended the job, are not
counted. Of several killed processes those within ten seconds of the first are named. Words of one that only noticed
that another was gone (`Worker proc … died unexpectedly`) name nobody and weigh little.

## Example
`failed (exitcode: -9) local_rank: 2 (pid: 1351)`, while ranks 0, 1 and 3 report `Connection closed by remote peer`.

## Fix
Look into the kernel log of that host; if it was the out-of-memory killer, hold less on the host.

## Limits
The exit code says that it was killed, not by which process.
"""

from __future__ import annotations

from msgspec.structs import replace

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.records.events.launchers import HostOutOfMemory
from whichrank.records.events.processes import NativeCrash
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import deaths, statements
from whichrank.timeline.job_state.outcome import losses_of_all
from whichrank.timeline.job_state.statements import Statement

CODE = "HOST103"
CAUSE = "rank-killed"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Look for the sender on that host: the kernel log (out-of-memory killer), the container's events.",
        "If memory was short: fewer data-loader workers, a memory-mapped checkpoint, a higher limit.",
    ),
    blames="host",
    alternatives=(("host-out-of-memory", "the out-of-memory killer is the usual sender of SIGKILL"),),
    next=(
        NextStep(
            "dmesg -T | grep -iE 'out of memory|oom-kill|killed process'",
            "tells whether the kernel killed it for memory",
            ("host-out-of-memory",),
            "none",
        ),
    ),
)


_UNSEEN = replace(
    _CLAIM,
    blames="rank",
    alternatives=(
        ("rank-native-crash", "a crash of its own looks the same to the process that waits for it"),
        ("host-out-of-memory", "the out-of-memory killer leaves no word in the job's output"),
    ),
)
"""For words of one that only noticed the end of another."""


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    if case.events(HostOutOfMemory) or deaths.out_of_memory(case):
        return []
    signs = statements.first_to_fail(_killed(case) or statements.known(case, CAUSE))
    if not signs or statements.known(case, "host-out-of-memory"):
        return []
    if all(s.grade is Grade.HINTS for s in signs):
        if statements.known(case, "job-ended-from-outside") or deaths.ended_from_outside(case):
            return []  # something does say how
        return [building.found(case, _UNSEEN, signs, "A process ended, and nothing says how.", Grade.HINTS)]
    ranks = statements.ranks_of(signs)
    message = f"{building.who(case, ranks, signs)} was killed (SIGKILL) from outside{building.others(case, ranks)}."
    return [building.found(case, _CLAIM, signs, message, Grade.SUPPORTS, ranks)]


def _killed(case: Case) -> list[Statement]:
    dead = deaths.deaths(case)
    killed = [d.sign for d in dead if d.signal == deaths.KILL and not d.by_launcher]
    if not killed and not dead and not losses_of_all(case):  # a shell's own word, where no launcher says more
        killed = statements.of_kind(case, NativeCrash, where=lambda e: e.signal == deaths.KILL)
    return [s for s in killed if not deaths.follows_the_end(case, s)]
