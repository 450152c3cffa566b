"""Timeouts against the waits that were really seen.

What it finds: a timeout that is shorter than twice the longest wait that ended well (the next slow checkpoint
or evaluation will break it); a hang that raising the timeout would only hide; groups whose timeouts differ
because sub-groups don't inherit one.

Why it happens: timeouts are guessed, raised after each hang, and new_group() takes the default, not the
parent's.

How it decides: the time that an operation stayed open on the first rank to enter it is what a timeout is
measured against. The longest of those that ended is compared with the timeout; one that never ended and had
waited far longer than any that did is a fault, not slowness.

Example: every wait ended within 4 s, one operation had waited 600 s: 1800 s would only have hung longer.

Fix: the number to set, or to leave the timeout and look for the rank that did not arrive.

Limits: only what the recorder's ring still held; a checkpoint that happens once an hour may not be in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.records.settings import Assignment, ObservedWait, Settings, flagged

CODE = "ENV118"
CAUSE = "wrong-environment"

MARGIN = 2.0
"""A timeout should be at least this many times the longest legitimate wait."""
HIDES = 4.0
"""A wait this many times longer than any that ended is no slowness."""


def judge(settings: Settings) -> list[Finding] | NotEvaluated:
    if not settings.waits:
        return NotEvaluated("waits that were observed (flight-recorder dumps, or --gap)")
    found = []
    for group in sorted({wait.group for wait in settings.waits}):
        found += list(_group(group, [wait for wait in settings.waits if wait.group == group]))
    return [*found, *_inherited(settings)]


def advised(seconds: float) -> int:
    """Twice the wait, rounded up to half a minute."""
    return max(30, math.ceil(seconds * MARGIN / 30) * 30)


def _group(group: str, waits: list[ObservedWait]) -> Iterator[Finding]:
    ended = [wait for wait in waits if wait.ended]
    longest = max(ended, key=lambda wait: wait.seconds, default=None)
    timeout = next((wait.timeout_s for wait in waits if wait.timeout_s), None)
    for stuck in (wait for wait in waits if not wait.ended):
        if longest is not None and stuck.seconds > HIDES * longest.seconds:
            message = (
                f"Raising the timeout of group {group} would only hide the fault: {stuck.what} had waited "
                f"{stuck.seconds:.0f} s, and the longest wait that ended took {longest.seconds:.1f} s."
            )
            fix = "Leave the timeout, and find the rank that did not arrive: whichrank diagnose."
            yield flagged(CODE, _holder(stuck), "warning", message, fix, also=(longest.ref,))
            return
    if longest is not None and timeout is not None and timeout < MARGIN * longest.seconds:
        message = (
            f"The timeout of group {group} is {timeout:.0f} s, and {longest.what} took {longest.seconds:.1f} s and "
            "ended well: the next one that is a little slower ends the job."
        )
        fix = f"Set it to timedelta(seconds={advised(longest.seconds)}) or more for this group."
        yield flagged(CODE, _holder(longest), "warning", message, fix)


def _inherited(settings: Settings) -> Iterator[Finding]:
    timeouts = {wait.group: wait for wait in settings.waits if wait.timeout_s}
    values = {wait.timeout_s for wait in timeouts.values()}
    if len(values) > 1:
        shown = ", ".join(f"{group} {wait.timeout_s:.0f} s" for group, wait in sorted(timeouts.items())[:6])
        message = f"Groups have different timeouts ({shown}): new_group() does not inherit its parent's."
        some = next(iter(timeouts.values()))
        yield flagged(CODE, _holder(some), "info", message, "Give new_group(timeout=…) for each group.")


def _holder(wait: ObservedWait) -> Assignment:
    return Assignment("timeout", None, wait.ref, wait.group, "process")
