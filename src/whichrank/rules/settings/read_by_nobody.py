"""A name that is passed around and that no version has ever read.

What it finds: NCCL_TIMEOUT and its like.

Why it happens: such names are copied from script to script; setting them gives no warning and no effect.

How it decides: by a list of names that were searched for in the sources and binaries of all releases.

Example: `export NCCL_TIMEOUT=1800` → the timeout belongs to init_process_group(timeout=…).

Fix: remove it, and use what really does the thing.

Limits: a program may read such a name itself; then it is that program's setting.
"""

from __future__ import annotations

from whichrank.facts.variables.environment import unread
from whichrank.model.findings import Finding
from whichrank.records.settings import Settings, flagged

CODE = "ENV102"
CAUSE = "wrong-environment"


def judge(settings: Settings) -> list[Finding]:
    found = []
    for assignment in settings.assignments():
        lore = unread().get(assignment.name)
        if lore is None or (assignment.how == "local" and assignment.used):
            continue
        message = f"{lore.name} has no effect. {lore.truth}."
        found.append(flagged(CODE, assignment, "warning", message, f"Remove it. Use instead: {lore.instead}."))
    return found
