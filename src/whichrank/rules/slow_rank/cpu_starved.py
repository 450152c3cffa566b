"""A rank lacks CPU: its container is held back by its quota.

## What it finds
Containers or jobs whose cgroup was throttled in a large share of its scheduling periods.

## Why it happens
A CPU limit below what data loading, the communication threads and Python need together.

## How it decides
By cpu.stat: throttled periods of all periods, between two looks where there are two. From a single look only half of
all periods throttled over at least a thousand is told, with little confidence.

## Example
`nr_periods 36000`, `nr_throttled 30211`

## Fix
Raise or remove the CPU limit of the container; use fewer data-loader workers and threads (OMP_NUM_THREADS).

## Limits
Throttling of a group does not tell which of its processes suffered.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.host import HostState
from whichrank.rules import hardware_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state.kernel_events import Weight

CODE = "SLOW150"
CAUSE = "cpu-starved"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="slow",
    fix=("Raise or remove the container's CPU limit, or use fewer data-loader workers and threads (OMP_NUM_THREADS).",),
    next=(
        NextStep(
            "cat /sys/fs/cgroup/cpu.stat (twice)",
            "shows whether it is throttled while it runs",
            ("cpu-starved",),
            "none",
        ),
    ),
)
_SHARE, _SHARE_ONCE = 0.25, 0.5
_SHARE_ALWAYS, _PERIODS_ALWAYS = 0.9, 200
_PERIODS, _PERIODS_ONCE = 50, 1000


def judge(case: Case) -> list[Finding] | NotEvaluated:
    states = [s for s in case.hardware.hosts if "nr_throttled" in s.cgroup and "nr_periods" in s.cgroup]
    if not states:
        return NotEvaluated("cpu.stat of the containers' cgroups")
    groups: dict[tuple[str | None, str, int | None], list[HostState]] = {}
    for state in states:
        groups.setdefault((state.host, state.ref.source.rpartition("/")[2], state.pid), []).append(state)
    for (host, _, pid), looks in groups.items():
        first, last = looks[0].cgroup, looks[-1].cgroup
        periods, held = last["nr_periods"] - first["nr_periods"], last["nr_throttled"] - first["nr_throttled"]
        twice = periods > 0
        if not twice:
            periods, held = last["nr_periods"], last["nr_throttled"]
        enough, share = (_PERIODS, _SHARE) if twice else (_PERIODS_ONCE if pid is None else _PERIODS, _SHARE_ONCE)
        always = periods >= _PERIODS_ALWAYS and held >= _SHARE_ALWAYS * periods  # the start of a process is shorter
        if always or (periods >= enough and held >= share * periods):
            return [_finding(case, host, looks, held / periods, twice=twice)]
    return []


def _finding(case: Case, host: str | None, looks: list[HostState], share: float, *, twice: bool) -> Finding:
    rank = case.people.rank_of(looks[0].pid, host)
    ranks = case.hardware.ranks_of_host(host) if rank is None else (rank,)
    where = f" of rank {rank}" if rank is not None else ""
    where += f" on {host}" if host else ""
    message = f"The CPU quota{where} holds the job back in {share:.0%} of all periods."
    subject = Subject(ranks=ranks if len(ranks) < case.world else (), hosts=(host,) if host else ())
    refs = [s.cite("nr_throttled") for s in (looks[0], looks[-1])]
    sure = Grade.SUPPORTS if twice or rank is not None else Grade.HINTS
    return hardware_findings.found(case, _CLAIM, refs, message, sure, weight=Weight("warning"), subject=subject)
