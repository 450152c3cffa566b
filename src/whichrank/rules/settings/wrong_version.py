"""A variable that the version at hand does not read: too old for it, or too new.

What it finds: variables that were removed before, or were added after, the NCCL or torch version at hand.

Why it happens: scripts outlive the releases they were written for, and advice is written for newer ones.

How it decides: by the first and last release that reads each variable. The version comes from --torch and --nccl,
from the file itself (an image tag, a pinned installation, a loaded module, a comment that says so), or from the
installation when the live environment is looked at. Without a version only variables that are gone from every
release in use are reported.

Example: `NCCL_TREE_THRESHOLD=0` (removed in 2.5); `TORCH_FR_BUFFER_SIZE` with torch 2.7.

Fix: the present name where there is one; otherwise remove it.

Limits: for some of PyTorch's variables the first release is not known; nothing is said about those. Of some NGC
images only the newest NCCL that they can have is known.
"""

from __future__ import annotations

from whichrank.facts.variables.environment import Variable, catalogue, renames
from whichrank.model.findings import Finding
from whichrank.records.settings import Assignment, Settings, flagged

CODE = "ENV104"
CAUSE = "wrong-environment"

# torch 2.2 came with NCCL 2.19: what ended before is gone from everything in use.
_IN_USE = {"NCCL": (2, 19), "PyTorch": (2, 2)}


def judge(settings: Settings) -> list[Finding]:
    known = catalogue()
    found = [_judge(settings, a, known[a.name]) for a in settings.assignments() if a.name in known]
    return [finding for finding in found if finding is not None]


def _judge(settings: Settings, assignment: Assignment, variable: Variable) -> Finding | None:
    torch, nccl = settings.versions(assignment)
    at_hand = nccl if variable.library == "NCCL" else torch[:2]
    first, last = variable.first, variable.last
    shown = ".".join(map(str, at_hand))
    if at_hand and first and at_hand[:2] < first[:2]:  # of patch releases not all were looked at
        older = next((r.old for r in renames().values() if r.new == variable.name and r.still_read), "")
        fix = (
            f"With {variable.library} {shown} set {older} instead."
            if older
            else f"Remove it, or update to {variable.since}."
        )
        message = f"{variable.name} is read since {variable.library} {variable.since}; {shown} ignores it."
        return flagged(CODE, assignment, "warning", message, fix)
    if last is None or (at_hand and at_hand[: len(last)] <= last):
        return None
    if not at_hand and torch and torch[:2] < _IN_USE["PyTorch"]:
        return None  # an old release, with an NCCL of its time
    rename = renames().get(variable.name)
    if rename is not None and rename.still_read and not at_hand:
        return None  # that it is deprecated is said elsewhere
    fix = f"Use {rename.new} instead." if rename and rename.new else "Remove it."
    message = f"{variable.name} was last read by {variable.library} {variable.until}; later versions ignore it."
    gone = bool(at_hand) or last < _IN_USE[variable.library]
    return flagged(CODE, assignment, "warning" if gone else "info", message, fix)
