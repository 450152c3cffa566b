"""A rank is steadily late; the others lose time waiting for it.

## What it finds
Over many operations one rank (or the ranks of one host) is the last to arrive, and the rest of its group waits.

## Why it happens
A slower or throttled GPU, a busy or badly pinned CPU, a slow data shard, more work on one rank (an embedding, a
logger), a noisy neighbour.

## How it decides
Without comparing clocks: the late rank waits least inside the operations, or takes longer than its peers from one
operation to the next. It must cost at least a tenth of the time, in most of the steps, and stand clear of the others.

## Example
Rank 5 waits 2 ms in each all_reduce, the others 90 ms: 30 % of the time is lost.

## Fix
Compare that rank's GPU clocks, temperatures, CPU load and data source with a neighbour's.

## Limits
Lateness that moves from rank to rank, and ranks that are equally slow, are not stragglers. Gloo records no end of an
operation: with a single operation per step nothing can be said there.
"""

from __future__ import annotations

from whichrank.model.findings import Alternative, Finding, NextStep, NotEvaluated, Subject
from whichrank.rules import telling
from whichrank.timeline.arrivals import Late
from whichrank.timeline.case import Case

CODE = "SLOW101"
CAUSE = "straggler"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if case.lineup is None:
        return NotEvaluated("flight-recorder dumps")
    return [_finding(case, case.late)] if case.late else []


def _finding(case: Case, late: Late) -> Finding:
    lineup = telling.lineup_of(case)
    group = lineup.groups[late.group]
    others = tuple(r for r in group.members if r not in late.ranks)
    how = "waits least" if late.measure == "waiting" else "takes longest between operations"
    return Finding(
        code=CODE, cause=CAUSE, category="slow", severity="warning", confidence=round(min(0.9, 0.6 + late.share), 2),
        subject=Subject(ranks=late.ranks, code=telling.place(lineup, late.row, late.ranks[0])),
        message=(
            f"{telling.culprits_text(case, late.ranks).capitalize()} is late in {group.title}: it {how} "
            f"(about {late.lost_ns / 1e6:.0f} ms each time), and the others lose {late.share:.0%} of the time."
        ),
        evidence=(telling.proof(lineup, late.row),), victims=others,
        alternatives=(Alternative("cpu-starved", 0.05, "its process may lack CPU"), Alternative("gpu-thermal-or-power", 0.05, "its GPU may be throttled")),
        next=(
            NextStep("nvidia-smi -q -d CLOCK,TEMPERATURE,PERFORMANCE", "on the late rank's host: throttling", ("gpu-thermal-or-power",), "none"),
            NextStep("py-spy top --pid PID", "on the late rank: where its time goes", ("input-bound", "cpu-starved"), "load"),
        ),
        fix=("Compare the late rank with a neighbour: GPU clocks and temperature, CPU load and affinity, data source, amount of work.",),
    )
