"""A rank computed something else than its peers or than itself, by its local gradients and by replays.

## What it finds
A local gradient that is far larger than those of all other ranks and than ever before, or a micro-batch that gave
another result when it was computed a second time.

## Why it happens
Silent data corruption: a bit that flips in a product, in an activation or in a gradient. NaN and infinity are a small
part of what such faults cause; most leave finite, wrong numbers that the reduction spreads to all replicas alike.

## How it decides
Norms before the reduction, compared with the other ranks and the steps before: 64 times as large, and more than twice
as far off as ever. On that suspicion the guard of this rank computes the micro-batch again with the same inputs and
random state, and once more on another device (another GPU of the host, another core of a CPU).

| here, again | on the other device | what it is |
|---|---|---|
| the same | the same | unusual data: nothing is reported |
| another result | one of the two | hardware that is wrong now and then |
| the same | another result, twice | hardware that is always wrong |
| any | a different result each time | code that is not deterministic: the hardware is not accused |

## Example
    norm of the local gradient 1.2e+19 at step 40     (rank 2; 0.31 to 0.34 on the others)

## Fix
Take that GPU out and test it. Go back to a checkpoint from before.

## Limits
Without a replay (sharded models, compiled models) an outlier alone is a warning. A small error is not seen. Where no
other device has room, hardware that is always wrong can't be told from unusual data.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Alternative, Finding, Grade, NextStep, NotEvaluated
from whichrank.rules import guard_findings
from whichrank.timeline.case import Case
from whichrank.timeline.guard.compare import Comparison
from whichrank.timeline.guard.wrong import Wrong

CODE = "SILE303"
CAUSE = "gpu-computes-wrong"

_TEST = NextStep("dcgmi diag -r 4", "on that GPU: tells whether it computes rightly", (CAUSE,), "load")


def judge(case: Case) -> list[Finding] | NotEvaluated:
    outliers = guard_findings.wrongs(case, "outlier")
    comparison = case.guarded
    if isinstance(outliers, NotEvaluated) or comparison is None:
        return guard_findings.NONE
    findings = [found for wrong in outliers if (found := _outlier(case, comparison, wrong)) is not None]
    named = {rank for wrong in outliers for rank in wrong.odd}
    return findings + [_replayed(case, wrong) for wrong in _replays(comparison) if not set(wrong.odd) & named]


def _outlier(case: Case, comparison: Comparison, wrong: Wrong) -> Finding | None:
    everything = [note.said for file, note in comparison.replays if file.rank in wrong.odd]
    replays = [said for said in everything if said.get("means") != "code"]
    at_once = [said for said in everything if said["s"] == wrong.step]
    always = next((said for said in replays if said.get("means") == "always"), None)
    differing = sum(not said["same"] for said in replays)
    if at_once and always is None and not differing:
        return None  # the same batch gives the same gradient again: unusual data; or the code gives any
    times = f"{wrong.detail['ratio']:.3g} times"
    where = f", most of it in {wrong.module}" if wrong.module else ""
    who = guard_findings.who(wrong)
    message = f"The local gradient of {who.lower()} was {times} that of the others at step {wrong.step}{where}"
    if differing:
        message += f"; computed again, {differing} of {len(replays)} micro-batches gave another result"
        message += ": it computes wrongly now and then."
    elif always is not None:
        message += f"; {_place(always)} the same micro-batch gives another result, twice: it is wrong each time."
    else:
        message += "." if not replays else f"; {len(replays)} later micro-batches gave the same result twice."
    sure = bool(differing) or always is not None
    grade = Grade.PROVES if sure else Grade.HINTS
    other = () if sure else (Alternative("data-order", "an unusual batch can do the same"),)
    fix = (guard_findings.go_back(case, wrong), "Take that GPU out of the job and run dcgmi diag -r 4 on it.")
    return guard_findings.found(
        case, wrong, CODE, CAUSE, message, grade, fix, severe=sure, gpu=True, alternatives=other,
        next=(_TEST,),
    )  # fmt: skip


def _replays(comparison: Comparison) -> list[Wrong]:
    """Ranks whose replays differ, where those of others don't."""
    by_rank: dict[int, list[Wrong]] = {}
    for file, note in comparison.replays:
        said = note.said
        if said.get("means") == "always" or (not said["same"] and said.get("means") != "code"):
            when = _place(said) if said["same"] else "the second time"
            quote = f"the micro-batch of step {said['s']} gave another result {when}"
            by_rank.setdefault(file.rank, []).append(
                Wrong("outlier", said["s"], (file.rank,), tuple(range(comparison.world)), str(said.get("module", "")),
                      "gradient", None, {file.rank: "differs"}, [file.ref(note.line, quote)],
                      {"where": _place(said) if said["same"] else ""})
            )  # fmt: skip
    if not by_rank or len(by_rank) * 2 > comparison.world:
        return []  # everybody's: code that is not deterministic, not a GPU
    return [wrongs[0] for wrongs in by_rank.values()]


def _replayed(case: Case, wrong: Wrong) -> Finding:
    who, where = guard_findings.who(wrong), wrong.detail["where"]
    message = f"{who} computed the same micro-batch twice at step {wrong.step} and got different results."
    if where:
        message = f"{who} gets another result for the micro-batch of step {wrong.step} {where}, each time."
    fix = (guard_findings.go_back(case, wrong), "Take that GPU out of the job and run dcgmi diag -r 4 on it.")
    # Two devices that differ: nothing says which of them is right, but for what others find.
    sure = Grade.SUPPORTS if where else Grade.PROVES
    return guard_findings.found(
        case, wrong, CODE, CAUSE, message, sure, fix, severe=not where, gpu=True, next=(_TEST,)
    )  # fmt: skip


def _place(said: dict[str, Any]) -> str:
    return f"on {str(said.get('on') or 'another device')[:40]}"
