"""The limit of locked memory is too small.

## What it finds
Verbs calls that register memory or make queues and fail for lack of memory, or libraries that name the limit.

## Why it happens
RDMA buffers are locked in memory. Shells started by mpirun, ssh, a scheduler or a container runtime have limits of 64
kB or 8 MB where a login shell has none.

## How it decides
The words of the message itself, by the shapes of each version. Lines after which training went on for many steps are
not counted. Of several messages the earliest names who is meant; a rank that only lost its peer is never named.

## Example
`NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory`

## Fix
Lift it where the ranks start: ulimit -l unlimited, limits.conf, LimitMEMLOCK=infinity of slurmd, sshd or the
container runtime, docker --ulimit memlock=-1. Start that service or session anew and check the rank itself: grep
locked /proc/PID/limits.

## Limits
A host that is really out of memory gives the same errno.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case

CODE = "RDMA208"
CAUSE = "memlock-ulimit"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        (
            "Lift it where the ranks start: ulimit -l unlimited, limits.conf, LimitMEMLOCK=infinity of slurmd, sshd or "
            "the container runtime, docker --ulimit memlock=-1."
        ),
        "Start that service or session anew and check the rank itself: grep locked /proc/PID/limits.",
    ),
    blames="host",
    next=(NextStep("grep locked /proc/PID/limits", "shows the limit of the rank itself", ("memlock-ulimit",), "none"),),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return building.judged(case, _CLAIM, "{who} may not lock enough memory for its adapter: {what}.")
