"""An old name: still read, with a deprecation warning.

What it finds: NCCL_ASYNC_ERROR_HANDLING, TORCH_NCCL_TRACE_BUFFER_SIZE and others that have a newer name.

Why it happens: PyTorch renamed its NCCL_* variables in 2.2 and those of the flight recorder in 2.8.

How it decides: by the table of renames. Where the torch version is known and older than the rename, the old
name is the right one and nothing is said; where no version is known it is only mentioned. Nothing is said where the
new name has the same value: files that serve several versions set both, and torch 2.8 to 2.10 need both for the pipe.

Example: `TORCH_NCCL_TRACE_BUFFER_SIZE=2000` with torch 2.13 → TORCH_FR_BUFFER_SIZE.

Fix: use the new name.

Limits: names that are no longer read at all are the subject of another rule.
"""

from __future__ import annotations

from whichrank.facts.variables.environment import Rename, renames
from whichrank.model.findings import Finding, Severity
from whichrank.records.settings import Assignment, Settings, flagged

CODE = "ENV103"
CAUSE = "wrong-environment"

_OLDEST_IN_USE = (2, 13)


def judge(settings: Settings) -> list[Finding]:
    found = []
    both = {(a.scope, a.name, a.value) for a in settings.assignments()}
    for assignment in settings.assignments():
        rename = renames().get(assignment.name)
        if rename is None or not rename.still_read:
            continue
        if (assignment.scope, rename.new, assignment.value) not in both:  # else on purpose, for several versions
            found += _renamed(settings, assignment, rename)
    return found


def _renamed(settings: Settings, assignment: Assignment, rename: Rename) -> list[Finding]:
    torch, nccl = settings.versions(assignment)
    at_hand = torch[:2] if rename.library == "torch" else nccl
    since = ".".join(map(str, rename.since))
    if at_hand and at_hand < rename.since:
        return []
    if not at_hand and rename.library == "torch" and rename.since > _OLDEST_IN_USE:
        return []
    if not rename.new:
        message = f"{rename.old} is deprecated since {since}: what it asks for is what happens anyway."
        return [flagged(CODE, assignment, "warning" if at_hand else "info", message, f"Remove {rename.old}.")]
    warns = "; the old name gives a warning" if rename.library == "torch" else "; the old name still works"
    message = f"{rename.old} is called {rename.new} since {rename.library} {since}{warns}."
    severity: Severity = "warning" if at_hand and rename.library == "torch" else "info"
    return [flagged(CODE, assignment, severity, message, f"Write {rename.new} instead.")]
