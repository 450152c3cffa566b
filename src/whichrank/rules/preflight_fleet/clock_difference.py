"""The clock of a host differs from the others'.

What it finds: hosts whose clock is more than a second away from that of most others.

Why it happens: no time synchronisation, a virtual machine that was paused, a wrong clock at boot.

How it decides: each host is asked for its time; half of the round trip is the error of the answer. The difference
must be larger than one second and than that error. Where more than half of the hosts agree, they count as right and the
others are named; else all are.

Example: `node3 is 5.0 s behind the others (± 0.004 s)`

Fix: run chrony or systemd-timesyncd on the host.

Limits: of two hosts nobody knows which one is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.records.inspection import Clock, Inspection
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
    agreeing = max(([c for c in clocks if _near(first, c)] for first in clocks), key=len)
    if len(agreeing) * 2 <= len(clocks):
        return [_nobody_knows(clocks)]
    middle = median(clock.ahead_s for clock in agreeing)
    findings = []
    for clock in clocks:
        ahead = clock.ahead_s - middle
        if abs(ahead) > _MOST_S + clock.error_s:
            words = f"{abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} the others (± {clock.error_s:.3f} s)"
            message = f"The clock of {clock.host} is {words}."
            refs = [measured("clock", f"{clock.host}: {words}", clock.host)]
            findings.append(found(CODE, CAUSE, "config", hosts(clock.host), message, refs, FIX, severity="warning"))
    return findings


def _near(first: Clock, other: Clock) -> bool:
    """Whether the second is ahead, but by no more than what does not matter."""
    return 0 <= other.ahead_s - first.ahead_s <= _MOST_S + first.error_s + other.error_s


def _nobody_knows(clocks: Sequence[Clock]) -> Finding:
    earliest, latest = min(clocks, key=lambda c: c.ahead_s), max(clocks, key=lambda c: c.ahead_s)
    words = f"{latest.host} is {latest.ahead_s - earliest.ahead_s:.1f} s ahead of {earliest.host}"
    names = ", ".join(clock.host for clock in clocks[:6]) + (f" and {len(clocks) - 6} more" if len(clocks) > 6 else "")
    message = f"The clocks of {names} differ, and no majority says which are right: {words}."
    refs = [measured("clock", f"{words} (± {earliest.error_s + latest.error_s:.3f} s)")]
    subject = hosts(*(clock.host for clock in clocks))
    return found(CODE, CAUSE, "config", subject, message, refs, FIX, severity="warning")
