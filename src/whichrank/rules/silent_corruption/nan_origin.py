"""A NaN or infinity arose on one rank and spread.

## What it finds
Losses that are no longer finite, and on which rank it began.

## Why it happens
A bad sample or a division by zero on one rank, an overflow in reduced precision, a faulty GPU; the next reduction
of the gradients carries it to all.

## How it decides
The first non-finite loss of every rank, by step. A rank that turned at least one step before all others is named;
where all turn at the same step, or only one rank prints its loss, nobody is. A loss that is finite again later (a
skipped step of a gradient scaler) does not count. The norm of the gradients alone counts little, and only where it is
NaN at the end of what is at hand. Where no loss is printed and several ranks raise that it is not finite, the one rank
that NumPy had warned before is named.

## Example
Rank 5 prints `loss nan` at step 812, the others at step 813.

## Fix
Look at the batch of that rank at that step; log the loss of every rank; `torch.autograd.set_detect_anomaly` on it.

## Limits
Needs losses of more than one rank. If it stays with one GPU whatever the data, suspect the hardware.
"""

from __future__ import annotations

import numpy as np

from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.model.late_pattern import late
from whichrank.records.events.base import Event
from whichrank.records.events.run_state import LossNonfinite
from whichrank.records.log import FINITE
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import exceptions, statements
from whichrank.timeline.job_state.statements import Statement

CODE = "SILE101"
CAUSE = "nan-origin"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="corruption",
    fix=(
        "Look at the batch that this rank had at that step, and at divisions, logarithms and overflows on its path.",
        "Go back to a checkpoint before that step: the reduction has carried it to every rank.",
    ),
    alternatives=(("gpu-computes-wrong", "if it stays with the GPU and not with the data, suspect the hardware"),),
    next=(
        NextStep(
            "log the loss of every rank at every step",
            "whose loss turns first is the origin",
            ("nan-origin", "gpu-computes-wrong"),
            "ends",
        ),
    ),
)

_OWN = late(r"(?i)\b(?:local|own|rank|shard)[-_ ]?(?:\w{1,12}[-_ ])?loss|\bloss[-_ ](?:local|own|rank)\b")
_LAST_LINES = 3
_GOES_ON = 2
"""Steps with finite losses that nobody reaches with a value that was spread."""
_NEAR = 1
"""Finite losses that may be printed until one shows what a rank brought into the reduction."""


def judge(case: Case) -> list[Finding] | NotEvaluated:
    given_up = exceptions.all_gave_up_on_nan(case)
    if given_up and not case.events(LossNonfinite):
        return [_given_up(case, given_up)]
    if not case.progress and not case.events(LossNonfinite):
        return NotEvaluated("progress lines with a loss")
    told = [e for e in case.events(LossNonfinite) if e.what == "loss" and not _recovered(case, e)]
    shown = told or [e for e in case.events(LossNonfinite) if e.what == "grad_norm" and e.value == "nan"]
    local = (_before_the_loss(case, shown) or _norm_of_one(case)) if shown else None
    if local is not None and local.rank is not None:
        signs = [statements.statement(case, e) for e in (local, *shown[:2])]
        who, what = building.who(case, (local.rank,), []), building.short(signs[0].text)
        message = f"{who} was the first with a value that is not finite, at step {local.step}: {what}."
        return [building.found(case, _CLAIM, signs, message, Grade.SUPPORTS, (local.rank,))]
    if not told:
        return [_given_up(case, given_up)] if given_up else _norm_alone(case)
    steps = {e.rank: step for e in told if e.rank is not None and (step := e.step) is not None and step >= 0}
    first = min(steps.values(), default=None)
    ranks = tuple(sorted(rank for rank, step in steps.items() if step == first))
    # What a rank calls its own is not yet reduced; the loss that another prints at this step is that of all.
    own = {e.rank for e in told if e.rank in ranks and _OWN.search(e.ref.quote)}
    ranks = tuple(rank for rank in ranks if rank in own) or ranks
    speaking = _speaking(case)
    alone = len(ranks) < len(speaking) and set(steps) | set(ranks) <= speaking
    named = ranks if alone and ranks else ()
    signs = [statements.statement(case, e) for e in told if not named or e.rank in named]
    if named:
        whose, value = building.whose(case, named), told[0].value
        message = f"The loss of {whose} was the first that turned {value}, at step {first}."
        return [building.found(case, _CLAIM, signs, message, Grade.SUPPORTS, named)]
    at = f" at step {first}" if first is not None else ""
    why = "all ranks turned together" if len(steps) > 1 else "the losses of other ranks are not at hand"
    return [building.found(case, _CLAIM, signs, f"The loss is no longer finite{at}; {why}.", Grade.SUPPORTS)]


def _given_up(case: Case, raised: list[Statement]) -> Finding:
    """The program ended because its loss was not finite; a rank may have warned before that of what it computed."""
    from whichrank.timeline.job_state.known_messages import seen  # a diagnosis of dumps alone needs no messages

    warned = seen(case, "numeric-warning")
    ranks = tuple({s.sign.rank for s in warned if s.sign.rank is not None})
    what = building.short(raised[0].ref.quote)
    if len(ranks) != 1 or any(s.sign.rank is None for s in warned):
        message = f"All ranks gave up on a loss that is not finite: {what}."
        return building.found(case, _CLAIM, raised, message, Grade.SUPPORTS, ())
    message = f"{building.who(case, ranks, [])} alone warned of a value that is not finite, then all gave up: {what}."
    return building.found(case, _CLAIM, [*(s.sign for s in warned), *raised], message, Grade.SUPPORTS, ranks)


def _before_the_loss(case: Case, told: list[LossNonfinite]) -> LossNonfinite | None:
    """A value that only one rank said to be not finite, before any loss turned and before others said the like."""
    values = [e for e in case.events(LossNonfinite) if e.what == "value" and e.rank is not None]
    here = [e for e in values if e.ref.source == told[0].ref.source]
    first = min(here, key=lambda e: e.line, default=None)
    if first is None or first.line > min(e.line for e in told):
        first = _at_an_earlier_step(values, told)
    if first is None:
        return None
    # The step that shows it may be logged a while later; finite ones in between say that it was over.
    shown = min((e.line for e in told if e.ref.source == first.ref.source), default=first.line)
    between = sum(
        int(((p.line > first.line) & (p.line < shown) & (p.loss_state == FINITE)).sum())
        for p in case.progress
        if p.source == first.ref.source
    )
    return first if between <= _NEAR else None


def _at_an_earlier_step(values: list[LossNonfinite], told: list[LossNonfinite]) -> LossNonfinite | None:
    """The value of one rank at a lower step than any loss that turned, and than the values of the others; at the same
    step as the loss, where the values of others are at hand and turn later."""
    turned = [e.step for e in told if e.step is not None and e.step >= 0]
    counted = [(e.step, e) for e in values if e.step is not None and e.step >= 0]
    step, first = min(counted, key=lambda each: each[0], default=(0, None))
    others = [at for at, e in counted if first is not None and e.rank != first.rank]
    if not turned or step > min(turned) or step >= min(others, default=step + 1):
        return None
    return first if others or step < min(turned) else None


def _norm_of_one(case: Case) -> LossNonfinite | None:
    """The norm of one rank, at an earlier step than any loss and the norms that the others print: it is not reduced."""
    turned = [e for e in case.events(LossNonfinite) if e.rank is not None and (e.step or -1) >= 0]
    if not turned:
        return None
    first = min(turned, key=lambda e: e.step or 0)
    others = [e for e in turned if e.rank != first.rank]
    later = all((e.step or 0) > (first.step or 0) for e in others)
    return first if first.what == "grad_norm" and later and any(e.what == "grad_norm" for e in others) else None


def _norm_alone(case: Case) -> list[Finding]:
    """A norm that turned NaN in the last lines of the output; before that a scaler may have skipped a step."""
    norms = [e for e in case.events(LossNonfinite) if e.what == "grad_norm"]
    last = [e for e in norms if e.value == "nan" and _lines_after(case, e) <= _LAST_LINES]
    if not last:
        return []
    message = "The norm of the gradients is NaN at the end of the output; whose gradients turned first is not told."
    return [building.found(case, _CLAIM, [statements.statement(case, e) for e in last], message, Grade.HINTS)]


def _lines_after(case: Case, event: Event) -> int:
    return sum(int((p.line > event.line).sum()) for p in case.progress if p.source == event.ref.source)


def _speaking(case: Case) -> set[int]:
    """Ranks that print a loss."""
    return {
        int(rank)
        for progress in case.progress
        for rank in np.unique(progress.rank[progress.loss_state > 0])
        if rank >= 0
    }


def _recovered(case: Case, event: Event) -> bool:
    """Whether the same speaker printed finite losses again, or the others at several steps behind its last one."""
    for progress in case.progress:
        if progress.source != event.ref.source:
            continue
        own = progress.rank == event.rank if event.rank is not None else np.ones(len(progress), bool)
        later = (progress.line > event.line) & (progress.loss_state > 0)
        # A value that a reduction had spread would show in the losses of all.
        rows = np.flatnonzero(later & own if (later & own).any() else later)
        if len(rows) and progress.loss_state[rows[-1]] == FINITE:
            return True
        behind = later & (np.arange(len(progress)) > (rows[-1] if len(rows) else -1))
        steps = np.unique(progress.step[behind & (progress.step >= 0)])
        last = behind & (progress.step >= steps[-_GOES_ON]) if len(steps) >= _GOES_ON else behind & False
        if last.any() and (progress.loss_state[last] == FINITE).all():
            return True
    return False
