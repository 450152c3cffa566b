"""A name that is passed around and that no version has ever read, or that the launcher itself writes.

What it finds: NCCL_TIMEOUT and its like; TORCHELASTIC_MAX_RESTARTS in front of torchrun.

Why it happens: such names are copied from script to script; setting them gives no warning and no effect. What torchrun
tells its workers looks like a setting of torchrun.

How it decides: by a list of names that were searched for in the sources and binaries of all releases, and one of names
that torchrun's agent writes into the environment of every worker.

Example: `export NCCL_TIMEOUT=1800` → the timeout belongs to init_process_group(timeout=…).

Fix: remove it, and use what really does the thing.

Limits: a program may read such a name itself; then it is that program's setting.
"""

from __future__ import annotations

from collections.abc import Iterator

from whichrank.facts.variables.environment import outputs, unread
from whichrank.model.findings import Finding
from whichrank.records.settings import Assignment, Settings, flagged

CODE = "ENV102"
CAUSE = "wrong-environment"


def judge(settings: Settings) -> list[Finding]:
    started = {launch.program for file in settings.files for launch in file.launches}
    return [finding for each in settings.assignments() for finding in (*_never(each), *_written(each, started))]


def _never(assignment: Assignment) -> Iterator[Finding]:
    lore = unread().get(assignment.name)
    if lore is not None and not (assignment.how == "local" and assignment.used):
        message = f"{lore.name} has no effect. {lore.truth}."
        yield flagged(CODE, assignment, "warning", message, f"Remove it. Use instead: {lore.instead}.")


def _written(assignment: Assignment, started: set[str]) -> Iterator[Finding]:
    """What the launcher overwrites. Started: the launchers of these files, empty for a rank that nobody starts."""
    output = outputs().get(assignment.name)
    if output is None or assignment.used or assignment.how in {"conf", "process"}:
        return
    by = [launcher for launcher in output.launchers if launcher in started]
    if by or not (started or output.read_elsewhere):
        who = by[0] if by else output.launchers[0]
        message = f"{output.name} has no effect. {who} does not read it: it writes it for its ranks, over this value."
        fix = f"Remove it. Use instead: {output.instead}." if output.instead else "Remove it."
        yield flagged(CODE, assignment, "warning", message, fix)
