"""The clock of a host differs from the others'.

What it finds: hosts whose clock is more than a second away from the middle of all.

Why it happens: no time synchronisation, a virtual machine that was paused, a wrong clock at boot.

How it decides: each host is asked for its time; half of the round trip is the error of the answer. The difference
must be larger than one second and than that error. The middle of all hosts counts as right.

Example: `node3 is 5.0 s behind the others (± 0.004 s)`

Fix: run chrony or systemd-timesyncd on the host.

Limits: of two hosts nobody knows which one is wrong.
"""

from __future__ import annotations

from statistics import median

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.records.inspection import Inspection
from whichrank.rules.preflight_findings import found, hosts, measured

CODE = "PREF108"
CAUSE = "clock-skew"
FIX = ("Start time synchronisation there: systemctl enable --now chronyd (or systemd-timesyncd).",)
_MOST_S = 1.0
"""Of the facts on hardware probes: more invalidates timelines across ranks."""


def judge(inspection: Inspection) -> list[Finding] | NotEvaluated:
    clocks = inspection.clocks
    if len(clocks) < 2:
        return NotEvaluated("the clocks of at least two hosts")
    middle = median(clock.ahead_s for clock in clocks)
    findings = []
    for clock in clocks:
        ahead = clock.ahead_s - middle
        if abs(ahead) > _MOST_S + clock.error_s:
            words = f"{abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} the others (± {clock.error_s:.3f} s)"
            message = f"The clock of {clock.host} is {words}."
            refs = [measured("clock", f"{clock.host}: {words}", clock.host)]
            findings.append(found(CODE, CAUSE, "config", hosts(clock.host), message, refs, FIX, severity="warning"))
    return findings
