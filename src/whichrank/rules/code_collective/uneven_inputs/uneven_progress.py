"""The logs show that ranks have different numbers of batches.

## What it finds
Progress lines whose totals differ between ranks while the job waits or has lost a peer, or torch's `Join` that
noticed it.

## Why it happens
Shards of different length, a sampler without padding, an iterable data set, dynamic batching, `drop_last=False`.

## How it decides
`Join` says so itself. Otherwise each rank's last progress line is read: ranks that have done all their steps while
others have more to do left the loop first. It counts only where the job reports a timeout or a lost peer.

## Example
Rank 2 prints `998/998`, ranks 0, 1 and 3 stand at `998/1001` and time out.

## Limits
Needs progress lines with totals from more than one rank.
"""

from __future__ import annotations

import numpy as np

from whichrank.facts.fixes import fix
from whichrank.model.evidence import Ref
from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.records.events.base import Event
from whichrank.records.events.collectives import MonitoredBarrierFailed
from whichrank.records.events.communication import GlooTimeout, PeerClosed
from whichrank.records.events.watchdog import DumpSignal, WatchdogTimeout
from whichrank.rules import building, wording
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import statements
from whichrank.timeline.job_state.statements import Statement

CODE = "COLL125"
CAUSE = "uneven-inputs"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=fix(CAUSE),
)
_SIMILAR, _FEW = 0.8, 5
_WAITS: tuple[type[Event], ...] = (
    WatchdogTimeout, GlooTimeout, PeerClosed, MonitoredBarrierFailed, DumpSignal,
)  # fmt: skip


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    joined = statements.said(case, "rank that exhausted inputs", "exhausted all inputs")
    last = _last_lines(case)
    left, others = _parted(last)
    uneven = bool(left) and bool(case.events(*_WAITS))
    if not joined and not uneven:
        return []
    ranks = left if uneven else ()
    signs = [*joined, *([last[r][2] for r in (*left[:2], *list(others)[:2])] if uneven else [])]
    if uneven:
        ends = ", ".join(f"{last[r][1]}" for r in left[:3])
        most = max(total for _, total, _ in others.values())
        who = wording.ranks_text(left).capitalize()
        message = f"{who} had only {ends} steps where others have {most}, and left the loop."
    else:
        message = "Some rank ran out of data before the others: torch's Join noticed it."
    return [building.found(case, _CLAIM, signs, message, Grade.SUPPORTS if uneven else Grade.PROVES, ranks)]


Last = dict[int, tuple[int, int, Statement]]


def _parted(last: Last) -> tuple[tuple[int, ...], Last]:
    """Ranks that did all their steps, and the others, which came as far and have more to do."""
    left = tuple(sorted(rank for rank, (step, total, _) in last.items() if step >= total))
    others = {rank: line for rank, line in last.items() if rank not in left}
    if not left or not others:
        return (), {}
    most, fewest = max(last[rank][1] for rank in left), min(total for _, total, _ in others.values())
    # Another loop (an evaluation) has quite another length, and says nothing of this one: unless all others stand just
    # where these ended.
    alike = _SIMILAR * fewest <= most or (most >= _FEW and all(step <= most + 1 for step, _, _ in others.values()))
    same_loop = alike and most < fewest and all(step >= most - 1 for step, _, _ in others.values())
    return (left, others) if same_loop else ((), {})


def _last_lines(case: Case) -> Last:
    """Per rank the last line with a total: step, total, and the line itself."""
    found: Last = {}
    for progress in case.progress:
        rows = np.flatnonzero((progress.total > 0) & (progress.rank >= 0))[::-1]
        for row in rows[np.unique(progress.rank[rows], return_index=True)[1]]:
            rank, step, total = int(progress.rank[row]), int(progress.step[row]), int(progress.total[row])
            ref = Ref(progress.source, f"line {int(progress.line[row])}", f"step {step}/{total}", rank)
            found[rank] = (step, total, Statement(ref.quote, ref, rank))
    return found
