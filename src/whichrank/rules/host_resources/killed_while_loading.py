"""A rank was killed while it loaded weights: the host ran out of memory.

## What it finds
A process that ended by SIGKILL while model weights were being read, before any training step.

## Why it happens
Every rank reads the whole checkpoint into host memory; together they need more than the machine has, and the kernel
kills one.

## How it decides
The launcher saw exit code -9 of a process that it had not ended itself; the output shows that weights were being
loaded, and no step. That somebody states the memory of the host makes it surer.

## Example
`> initializing model parallel with size 2`, then `failed (exitcode: -9) local_rank: 0`

## Fix
Load weights memory-mapped or shard by shard (safetensors, low_cpu_mem_usage, mmap=True), on one rank at a time, or
use a larger machine.

## Limits
Only the kernel log proves it.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import deaths, known_messages, statements

CODE = "HOST202"
CAUSE = "host-out-of-memory"

_CLAIM = Claim(
    CODE,
    CAUSE,
    blames="host",
    fix=(
        "Load weights memory-mapped or shard by shard (safetensors, low_cpu_mem_usage), on one rank at a time.",
        "Or use a machine, or a limit, with more memory.",
    ),
    alternatives=(("rank-killed", "somebody else may have sent the signal"),),
    next=(
        NextStep(
            "dmesg -T | grep -iE 'out of memory|oom-kill|killed process'",
            "tells whether the kernel killed it for memory",
            ("host-out-of-memory", "rank-killed"),
            "none",
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    killed = [d.sign for d in deaths.deaths(case) if d.signal == deaths.KILL and not d.by_launcher]
    loading = known_messages.seen(case, "doing-load-weights")
    if not killed or not loading or known_messages.has_run(case) or deaths.ended_from_outside(case):
        return []
    stated = [s.sign for s in known_messages.seen(case, "told-ram")]
    signs = statements.first_to_fail(killed)
    ranks = statements.ranks_of(signs)
    message = f"{building.who(case, ranks, signs)} was killed (SIGKILL) while weights were loaded into host memory."
    proof = [*signs, *(s.sign for s in loading[:1]), *stated]
    return [building.found(case, _CLAIM, proof, message, Grade.SUPPORTS, ranks)]
