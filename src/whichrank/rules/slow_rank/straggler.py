"""A rank is steadily late; the others lose time waiting for it.

## What it finds
Over many operations one rank (or the ranks of one host) is the last to arrive, and the rest of its group waits.

## Why it happens
A slower or throttled GPU, a busy or badly pinned CPU, a slow data shard, more work on one rank (an embedding, a
logger), a noisy neighbour.

## How it decides
The late rank waits least, summed over all its groups: by the recorder's durations, by the noted ends, or (Gloo notes
none) by arrivals on clocks that the collectives themselves align. It must cost the others at least a tenth of the
time, wait least in most parts of the run, and stand clear of the others. Where processes of the job failed it is only
noted: the crash is what to explain.

## Example
Rank 5 waits 2 ms in each all_reduce, the others 90 ms: 30 % of the time is lost.

## Limits
Lateness that moves from rank to rank, and ranks that are equally slow, are not stragglers. Where the clocks can't be
aligned (Gloo on several hosts with one operation per step) nothing is said.
"""

from __future__ import annotations

from whichrank.facts.fixes import fix
from whichrank.model.findings import Alternative, Finding, Grade, NextStep, NotEvaluated, Subject
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.arrivals import Late

CODE = "SLOW101"
CAUSE = "straggler"
_MUCH = 0.25
"""Of the time; so much is no matter of chance."""


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if case.lineup is None:
        return NotEvaluated("flight-recorder dumps")
    return [_finding(case, case.late)] if case.late else []


def _finding(case: Case, late: Late) -> Finding:
    lineup = wording.lineup_of(case)
    others = tuple(r for r in lineup.dumped if r not in late.ranks)
    name = wording.culprits_text(case, late.ranks).capitalize()
    verb, pronoun = ("is", "it") if len(late.ranks) == 1 else ("are", "they")
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="slow",
        severity="info" if _crashed(case) else "warning",
        grade=Grade.PROVES if late.share >= _MUCH else Grade.SUPPORTS,
        kind="timing",
        subject=Subject(ranks=late.ranks, code=wording.place(lineup, late.row, late.ranks[0])),
        message=(
            f"{name} {verb} late over {late.operations} operations: the others wait "
            f"{late.others_wait_ns / 1e6:.0f} ms in each, {pronoun} {late.waits_ns / 1e6:.0f} ms, "
            f"and lose {late.share:.0%} of the time."
        ),
        evidence=(wording.proof(lineup, late.row),),
        victims=others,
        alternatives=(
            Alternative("cpu-starved", "its process may lack CPU"),
            Alternative("gpu-thermal-or-power", "its GPU may be throttled"),
        ),
        next=(
            NextStep(
                "nvidia-smi -q -d CLOCK,TEMPERATURE,PERFORMANCE",
                "on the late rank's host: throttling",
                ("gpu-thermal-or-power",),
                "none",
            ),
            NextStep(
                "py-spy top --pid PID",
                "on the late rank: where its time goes",
                ("input-bound", "cpu-starved"),
                "load",
            ),
        ),
        fix=fix(CAUSE),
    )


def _crashed(case: Case) -> bool:
    """Whether processes of the job failed: then it is not for being late that anybody asks."""
    from whichrank.timeline.job_state import deaths

    return any(d.signal in (deaths.ABORT, *deaths.NATIVE) or d.signal is None for d in deaths.deaths(case))
