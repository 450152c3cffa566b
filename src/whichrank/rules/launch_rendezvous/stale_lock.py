"""A lock or a store of an earlier run blocks this one.

## What it finds
Stacks and messages of processes that wait for a lock file: of an extension build, of a cache, of a package tool.

## Why it happens
A run that was killed leaves its lock file behind; the next one waits for an owner that does not exist. On network
file systems locks outlive their owners.

## How it decides
The words of the message itself, by the shapes of each version. A file store is blamed where the ranks meet in a file
(`init_method="file://…"`) and Gloo is refused at an address that it found there. Lines after which training went on
for many steps are not counted. Of several messages the earliest names who is meant; a rank that only lost its peer is
never named.

## Example
`File ".../torch/utils/file_baton.py", line 42, in wait`

## Fix
See whether any process holds it (lsof FILE); if none does, remove the lock: for torch extensions
~/.cache/torch_extensions/*/*/lock. Keep such caches on local disks, or one per host.

## Limits
While another process really builds, the wait is right and ends by itself.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NextStep, NotEvaluated
from whichrank.rules import sighted
from whichrank.rules.crashes import Claim
from whichrank.timeline.case import Case

CODE = "LNCH201"
CAUSE = "stale-lock-or-store"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        (
            "See whether any process holds it (lsof FILE); if none does, remove the lock: for torch extensions "
            "~/.cache/torch_extensions/*/*/lock."
        ),
        "Keep such caches on local disks, or one per host.",
    ),
    category="hang",
    next=(
        NextStep(
            "lsof LOCKFILE",
            "tells whether any process holds the lock",
            (
                "stale-lock-or-store",
                "rank-stuck-in-compile",
            ),
            "none",
        ),
    ),
)


_UNREACHED = ("gloo-mesh", "gloo-loopback")
_STORE = Claim(
    CODE,
    CAUSE,
    fix=(
        "Remove the file before every start, or give it a name of its own for each run.",
        "Let torchrun do the rendezvous: it needs no file.",
    ),
    alternatives=(("wrong-interface", 0.15, "a rank may announce an address that the others can't reach"),),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    """A lock by its message; a store by addresses in it at which nobody listens."""
    refused = [s for s in sighted.seen(case, *_UNREACHED) if "refused" in s.sign.text]
    if refused and sighted.seen(case, "torch-filestore") and not sighted.has_run(case):
        message = "The ranks met in a file, and at an address in it nobody listens: an earlier run has left it. {what}."
        return [sighted.tell_of(case, _STORE, message, refused, 0.72)]
    return sighted.judge(case, _CLAIM, "{who} waits for a lock that an earlier run may have left behind: {what}.")
