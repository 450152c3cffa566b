"""The limit of open files is far too low for the job.

## What it finds
A limit of open files of 1,024 or less in the shell or process of a rank, where the job ran out of file descriptors.

## Why it happens
Shells that ssh, mpirun or a container starts have small defaults; every peer, data-loader worker and shared tensor
takes files.

## How it decides
By `ulimit -n` or `/proc/PID/limits`, and by the words of errno 24 in the job's output. The limit alone accuses nobody.

## Example
`Max open files  1024  1048576  files`, with `OSError: [Errno 24] Too many open files`

## Limits
The limit that was shown may be of another shell than the ranks'.
"""

from __future__ import annotations

from whichrank.facts.fixes import fix
from whichrank.model.findings import Finding, Grade, NotEvaluated, Subject
from whichrank.records.host import UNLIMITED
from whichrank.rules import building, hardware_findings
from whichrank.rules.hardware_findings import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import statements
from whichrank.timeline.job_state.kernel_events import Weight

CODE = "HOST152"
CAUSE = "fd-limit"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=fix(CAUSE),
)
_FEW = 4096


def judge(case: Case) -> list[Finding] | NotEvaluated:
    states = [s for s in case.hardware.hosts if "nofile" in s.limits]
    if not states:
        return NotEvaluated("limits of the ranks (ulimit -a, /proc/PID/limits)")
    low = [s for s in states if UNLIMITED < s.limits["nofile"] <= _FEW]
    told = statements.said(case, "Too many open files", "[Errno 24]", "received 0 items of ancdata")
    if not low or not told:
        return []
    signs = statements.first_to_fail(told)
    ranks = statements.unless_all(case, statements.ranks_of(signs))
    host = low[0].host
    message = (
        f"{building.who(case, ranks, signs)} may open only {low[0].limits['nofile']:,} files, and ran out of them."
    )
    subject = Subject(ranks=ranks, hosts=(host,) if host else ())
    refs = [low[0].cite("nofile"), *building.refs(signs)]
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
