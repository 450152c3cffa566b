"""Fewer ranks begin to make the process group than it has, by the lines of Lightning.

## What it finds
A job of Lightning that hangs while it creates its process group, where some ranks never say that they begin.

## Why it happens
A node was not started, `--nodes` or `--ntasks-per-node` of the scheduler differ from `num_nodes` and `devices`, or
every node numbers its processes from zero, so that ranks come twice and others never.

## How it decides
Every rank prints `GLOBAL_RANK: r, MEMBER: n/size` before it makes the group, and rank 0 prints when all have. Where the
second line is missing, the ranks that never printed the first are missing, or print elsewhere.

## Example
Ranks 0 to 3 print `MEMBER: …/8`, and nothing follows.

## Fix
Let the scheduler start as many tasks as the group has: `--nodes` = num_nodes and `--ntasks-per-node` = devices.

## Limits
Where every node has a log of its own, that of one node looks the same: so nobody is named.
"""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from whichrank.model.findings import Finding, Grade, NotEvaluated, Subject
from whichrank.records.events.startup import GroupInit, MemberBegins, MembersMet
from whichrank.records.events.watchdog import WatchdogTimeout
from whichrank.rules import building, wording
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import statements

CODE = "LNCH111"
CAUSE = "missing-rank-at-init"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=(
        "Start as many tasks as the group has: --nodes = num_nodes and --ntasks-per-node = devices, by srun.",
        "Look at the output of the other nodes: did their processes start, and what did they print?",
    ),
    alternatives=(("world-size-mismatch", "every node may number its processes from zero"),),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    signs = statements.of_kind(case, MemberBegins)
    begun = Counter(s.rank for s in signs if s.rank is not None)
    size = max((s.event.size or 0 for s in signs if isinstance(s.event, MemberBegins)), default=0)
    missing = [rank for rank in range(size) if rank not in begun]
    if not missing or case.progress or case.events(MembersMet, GroupInit, WatchdogTimeout):
        return []
    twice = [rank for rank, times in begun.items() if times > 1]
    again = f"; {wording.ranks_text(twice)} came twice" if twice else ""
    message = f"Of {size} ranks, {wording.ranks_text(missing)} never say that they make the process group{again}."
    found = building.found(case, _CLAIM, signs, message, Grade.HINTS)
    return [found if twice else replace(found, subject=Subject(candidates=tuple(missing)))]
