"""All ranks stop on a value that is not finite, and one of them had it before it was reduced.

## What it finds
Ranks that raise because a loss, a norm or a gradient is NaN or infinite, where some of them hold a value of their own
that is not finite and the others hold a finite one under the same name.

## Why it happens
A batch with bad values, a division by zero or a logarithm of zero on the path of that rank, an overflow, or a GPU that
computes wrongly. The reduction hands it to all ranks, and all of them raise the same exception.

## How it decides
Under `whichrank run` a rank that fails on such an exception tells which numbers and small tensors of the frames of its
traceback are finite. A name that holds something finite on some ranks and not on others was not reduced yet: those
others are the origin. Where several names differ, the one that fewest ranks hold so counts, if it is among all others.

## Example
Ranks 0-3 raise `FloatingPointError: loss is nan`; `loss` in `main` is not finite on rank 3 alone.

## Fix
Look at the batch of that rank and at divisions and logarithms on its path. Go back to a checkpoint before.

## Limits
If the value came into the weights some steps before, every rank holds it and nothing differs.
"""

from __future__ import annotations

from whichrank.model.evidence import Ref
from whichrank.model.findings import Alternative, CodePlace, Finding, Grade, NotEvaluated, Subject
from whichrank.records.variables import HeldFrame
from whichrank.rules import wording
from whichrank.timeline.case import Case

CODE = "SILE206"
CAUSE = "nan-origin"


_Key = tuple[str, str, str]
"""File, function and name."""


def judge(case: Case) -> list[Finding] | NotEvaluated:
    held = _held(case)
    if not held:
        return NotEvaluated("what ranks held when they failed on a value that is not finite (whichrank run)")
    bad = {key: tuple(r for r, frame in of_ranks.items() if not frame.values[key[2]]) for key, of_ranks in held.items()}
    differing = {key: ranks for key, ranks in bad.items() if 0 < len(ranks) < len(held[key])}
    if not differing:
        return []
    key = min(differing, key=lambda key: len(differing[key]))
    if not all(set(differing[key]) <= set(ranks) for ranks in differing.values()):
        return []
    return [_finding(case, key, differing[key], held[key])]


def _held(case: Case) -> dict[_Key, dict[int, HeldFrame]]:
    """The ranks that tell of a value whether it is finite, where several do."""
    found: dict[_Key, dict[int, HeldFrame]] = {}
    for rank, told in sorted(case.variables.items()):
        for frame in told.frames:
            for name in frame.values:
                if name.startswith("finite("):
                    found.setdefault((frame.file, frame.function, name), {}).setdefault(rank, frame)
    return {key: of_ranks for key, of_ranks in found.items() if len(of_ranks) > 1}


def _finding(case: Case, key: _Key, ranks: tuple[int, ...], frames: dict[int, HeldFrame]) -> Finding:
    _, function, told = key
    name, first = _name(told), frames[ranks[0]]
    others = tuple(rank for rank in frames if rank not in ranks)
    whose = wording.culprits_text(case, ranks).capitalize()
    message = (
        f"{whose} had a value that is not finite before it was reduced: {name} in {function}; "
        f"that of {wording.ranks_text(others)} is finite."
    )
    return Finding(
        code=CODE,
        cause=CAUSE,
        category="crash",
        severity="error",
        grade=Grade.PROVES,
        kind="stacks",
        subject=Subject(ranks=ranks, code=(CodePlace(first.file, first.line, function, ranks[0]),)),
        message=message,
        evidence=tuple(_ref(case, told, rank, frames[rank]) for rank in (ranks[0], others[0])),
        victims=others,
        alternatives=(
            Alternative("gpu-computes-wrong", "if it stays with the GPU and not with the data, suspect the hardware"),
        ),
        fix=(
            "Look at the batch that this rank had at that step, and at divisions and logarithms on its path.",
            "Go back to a checkpoint before that step if the optimizer has stepped with it.",
        ),
    )


def _ref(case: Case, told: str, rank: int, frame: HeldFrame) -> Ref:
    said = "is finite" if frame.values[told] else "is not finite"
    return Ref(case.variables[rank].source, frame.place, f"{_name(told)} in {frame.function} {said}", rank)


def _name(told: str) -> str:
    """`loss` of `finite(loss)`."""
    return told.removeprefix("finite(").rstrip(")")
