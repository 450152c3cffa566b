"""By the times that the training loop prints, steps wait for data.

## What it finds
Training loops that spend a large part of each step before its data is there.

## Why it happens
Too few loader workers, slow storage, decoding or tokenising on the fly, a cold cache.

## How it decides
Many loops print the time of a step and the part of it that was spent on data (`Time 0.78 (2.77)  Data 0.01 (1.20)`,
`time: 0.35, data_time: 0.20`). Where that is 40 % or more on a rank, over several steps, the data holds the step up;
the means in parentheses are taken where there are any. The same holds of lines that tell the parts of a step by name
(`wait_for_data 1451 ms, forward 6 ms, …`), on the typical rank. If the job became slower at some line, the part of the
step that grew most from there on counts.

## Example
`Epoch: [1][200/5004]  Time 0.912 (0.944)  Data 0.611 (0.630)`

## Fix
More workers, prefetching, pinned memory, data closer to the host.

## Limits
A loop that measures its data time around an asynchronous step counts the wait for the GPU as data time of the next.
"""

from __future__ import annotations

from whichrank.facts.fixes import fix
from whichrank.model.evidence import Ref
from whichrank.model.findings import Alternative, Finding, Grade, NotEvaluated, Subject
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import measured

CODE = "SLOW113"
CAUSE = "input-bound"
_LEAST = 0.4
_LINES, _OFTEN = 3, 5


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if case.slowed is not None and (since := _grew(case, case.slowed)):
        return [since]
    if not case.step_parts:
        return _by_ranks(case) if case.rank_values else NotEvaluated("data times of steps in the output")
    # A mean stands for many steps, however many lines of it there are.
    enough = [parts for parts in case.step_parts if parts.count >= _LINES or parts.is_mean]
    worst = max(enough, key=lambda parts: parts.data_s / parts.step_s, default=None)
    if worst is None or worst.data_s / worst.step_s < _LEAST:
        return []
    who = f"{wording.who(case, worst.rank).capitalize()} spends" if worst.rank is not None else "The steps spend"
    ref = Ref(worst.source, f"line {worst.line}", worst.quote[:400], worst.rank)
    return [_finding(_share(who, worst.data_s / worst.count, worst.step_s / worst.count), (ref,))]


def _grew(case: Case, since: Ref) -> Finding | None:
    """The time for data, where a job became slower and nothing else takes longer by as much."""
    grown = measured.grown(case.rank_values, since)
    if grown is None or grown.cell.quantity != "data":
        return None
    ref = Ref(grown.source, f"line {grown.cell.line}", grown.cell.quote[:400])
    told = grown.cell.quote.strip()[:120]
    return _finding(f"The job became slower ({since.quote}), and what takes longer is the data: {told}.", (since, ref))


def _by_ranks(case: Case) -> list[Finding]:
    """Where the typical rank tells so: one that alone waits for its data is late, and has a rule of its own."""
    told = sorted((s for s in measured.data_shares(case.rank_values) if s.lines >= _OFTEN), key=lambda s: s.share)
    if not told or told[len(told) // 2].share < _LEAST:
        return []
    typical = told[len(told) // 2]
    message = _share("The steps spend", typical.data_ms / 1e3, typical.whole_ms / 1e3)
    return [_finding(message, tuple(s.ref for s in told[-3:]))]


def _share(who: str, data_s: float, step_s: float) -> str:
    return f"{who} {data_s / step_s:.0%} of the step time waiting for data ({data_s:.3g} of {step_s:.3g} s)."


def _finding(message: str, evidence: tuple[Ref, ...]) -> Finding:
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="slow",
        severity="warning",
        grade=Grade.SUPPORTS,
        kind="timing",
        subject=Subject(),
        message=message,
        evidence=evidence,
        alternatives=(Alternative("storage-stall", "the storage behind the data may be slow"),),
        fix=fix(CAUSE),
    )
