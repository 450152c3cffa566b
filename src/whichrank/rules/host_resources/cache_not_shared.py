"""A file that one rank wrote is not there on the other hosts.

## What it finds
Missing files of caches, index files and built extensions, on some ranks while others have them.

## Why it happens
One rank (mostly rank 0) prepares the file and all wait; the folder is local to its host, or the file system shows it
late.

## How it decides
The missing path lies in a cache, an index or a build folder. It counts where only some of the ranks miss it, or where
the rank that misses it is not rank 0. Any other path counts where several ranks miss the same one and rank 0 does not.

## Example
`FileNotFoundError: [Errno 2] No such file or directory: '/data/index-cache/abc_shuffle_idx.npy'`

## Fix
Put the folder on storage that all hosts share, or let one rank of every host (LOCAL_RANK 0) prepare it, with a
barrier after it.

## Limits
A path that is simply wrong is missing on all ranks: then it is the exception of the program.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, missing_files, statements

CODE = "HOST201"
CAUSE = "cache-not-shared"

_CLAIM = Claim(
    CODE,
    CAUSE,
    blames="host",
    fix=(
        "Put the folder on storage that all hosts share.",
        "Or let one rank of every host (LOCAL_RANK 0) prepare it, with a barrier after it.",
    ),
    alternatives=(("rank-exception", "the path may be wrong"),),
    next=(NextStep("ls -l PATH on every host", "shows which hosts have the file", (CAUSE,), "none"),),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    told = [s for s in known_messages.of_cause(case, CAUSE) if s.signature.role == "root"]
    ranks = {s.sign.rank for s in told if s.sign.rank is not None}
    if not told:
        return _of_one_path(case)
    if ranks and (0 in ranks or len(ranks) == case.world):
        return []
    sure = Grade.SUPPORTS if ranks else Grade.HINTS
    return [building.tell_of(case, _CLAIM, "{who} misses a file that another rank prepared: {what}.", told, sure)]


def _of_one_path(case: Case) -> list[Finding]:
    found = missing_files.not_shared(case)
    if found is None:
        return []
    path, signs = found
    ranks = tuple(sorted(signs))
    message = f"{building.who(case, ranks)} miss {path}, which rank 0 does not miss: its folder is not shared."
    return [building.found(case, _CLAIM, list(signs.values()), message, Grade.SUPPORTS, ranks)]
