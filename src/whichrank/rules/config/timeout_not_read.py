"""A longer timeout was set by a variable that nobody reads.

## What it finds
`NCCL_TIMEOUT` and its like beside a collective that timed out.

## Why it happens
Such names are copied from script to script; setting them gives no warning and has no effect.

## How it decides
The variable is set in what is shown of the job, and a watchdog reports a timeout. By how long it had waited the
message shows that the setting was not heeded. It is told beside the reason of the wait, never in its place.

## Example
`export NCCL_TIMEOUT=7200` beside `Timeout(ms)=1800000`

## Fix
`init_process_group(timeout=timedelta(...))`, and `new_group(timeout=...)` for other groups.

## Limits
The program may read such a name itself; then its own setting is meant. A longer timeout cures no hang.
"""

from __future__ import annotations

from msgspec.structs import replace

from whichrank.facts.variables.environment import unread
from whichrank.model.findings import Finding, Grade, NotEvaluated, Subject
from whichrank.records.events.watchdog import WatchdogTimeout
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements

CODE = "CONF202"
CAUSE = "wrong-environment"

_SETTING = "env-timeout-unread"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    waited = case.events(WatchdogTimeout)
    found = [s for s in known_messages.seen(case, _SETTING) if s.group("name") in unread()]
    if not waited or not found:
        return []
    lore = unread()[found[0].group("name")]
    limit = next((ms for event in waited if (ms := event.timeout_ms) is not None), None)
    held = f"; the ranks gave up after {limit / 1000:g} s" if limit is not None else ""
    claim = Claim(CODE, CAUSE, fix=(f"Remove it. Use instead: {lore.instead}.",), category="hang", severity="warning")
    signs = [found[0].sign, *(statements.statement(case, event) for event in waited[:2])]
    message = f"{lore.name} has no effect{held}. {lore.truth}."
    return [replace(building.found(case, claim, signs, message, Grade.HINTS), subject=Subject())]
