"""A file that one rank wrote is not there on the other hosts.

## What it finds
Missing files of caches, index files and built extensions, on some ranks while others have them.

## Why it happens
One rank (mostly rank 0) prepares the file and all wait; the folder is local to its host, or the file system shows it
late.

## How it decides
The missing path lies in a cache, an index or a build folder. It counts where only some of the ranks miss it, or where
the rank that misses it is not rank 0. Any other path counts where several ranks miss the same one and rank 0 does not.
A path in a folder that every host has for itself (`/tmp`) hints at it in a job of several hosts.
A checkpoint counts where some hosts load it and others say that they find none: these train on from other weights.

## Example
`FileNotFoundError: [Errno 2] No such file or directory: '/data/index-cache/abc_shuffle_idx.npy'`

## Fix
Put the folder on storage that all hosts share, or let one rank of every host (LOCAL_RANK 0) prepare it, with a
barrier after it.

## Limits
A path that is simply wrong is missing on all ranks: then it is the exception of the program.
"""

from __future__ import annotations

from msgspec.structs import replace

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.records.events.run_state import CheckpointLoad
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.identity.who import short_name
from whichrank.timeline.job_state import known_messages, missing_files, outcome, statements

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

_SPOILED = replace(
    _CLAIM, category="corruption", alternatives=(("replica-divergence", "the hosts may hold other weights for more"),)
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    told = [s for s in known_messages.of_cause(case, CAUSE) if s.signature.role == "root"]
    ranks = {s.sign.rank for s in told if s.sign.rank is not None}
    if not told:
        return _of_one_path(case) or _of_a_checkpoint(case) or _in_a_local_folder(case)
    if ranks and (0 in ranks or len(ranks) == case.world):
        return []
    sure = Grade.SUPPORTS if ranks else Grade.HINTS
    return [building.tell_of(case, _CLAIM, "{who} did not find a file that another rank prepared: {what}.", told, sure)]


def _of_a_checkpoint(case: Case) -> list[Finding]:
    """Some hosts load a checkpoint that the others don't find: those train on from other weights."""
    loads = [event for event in case.events(CheckpointLoad) if event.host]
    without = {short_name(e.host): e for e in reversed(loads) if not e.found and e.host}
    having = {short_name(e.host) for e in loads if e.found and e.host}
    if not without or not having or without.keys() & having:
        return []
    ranks = tuple(sorted({rank for host in without for rank in case.people.ranks_on(host)}))
    signs = [statements.statement(case, event) for event in without.values()]
    signs += [statements.statement(case, e) for e in loads if e.found][:1]
    message = (
        f"{', '.join(sorted(without))} found no checkpoint and went on without, while {', '.join(sorted(having)[:3])} "
        "loaded one: its folder is not shared, and the weights differ."
    )
    claim = _CLAIM if outcome.failures(case) else _SPOILED
    finding = building.found(case, claim, signs, message, Grade.SUPPORTS, ranks)
    return [building.about(finding, Subject(ranks=ranks, hosts=tuple(sorted(without))))]


def _in_a_local_folder(case: Case) -> list[Finding]:
    found = missing_files.in_local_folder(case)
    if found is None:
        return []
    path, sign = found
    message = f"{path} is missed in a job of several hosts: its folder is local to each of them."
    return [building.about(building.found(case, _CLAIM, [sign], message, Grade.HINTS), Subject())]


def _of_one_path(case: Case) -> list[Finding]:
    found = missing_files.not_shared(case)
    if found is None:
        return []
    path, signs = found
    ranks = tuple(sorted(signs))
    message = f"{building.who(case, ranks)} miss {path}, which rank 0 does not miss: its folder is not shared."
    return [building.found(case, _CLAIM, list(signs.values()), message, Grade.SUPPORTS, ranks)]
