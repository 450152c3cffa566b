"""Ranks pass different element counts to the same collective.

## What it finds
Members of a group called the same operation with different sizes. It may hang, fail, or go on with wrong numbers:
NCCL compares nothing and prints nothing.

## Why it happens
A last batch of another length that is gathered without padding, a parameter that exists on some ranks only, a
different vocabulary or model configuration on one host, dynamic shapes.

## How it decides
Element counts are compared where they must agree (not for all-to-all, not at the root of gather and scatter). The
minority is the culprit; a difference that is really a shift of the whole sequence is reported as a skipped collective.
Where NCCL's log alone tells of a hang, sizes that are a thousand times apart are those of two calls of the program: a
rank took another path.

## Example
At `#17` rank 3 passes 262,144 elements to `all_reduce`, ranks 0-2 pass 1,048,576.

## Fix
Gather the sizes first and pad to the largest, or make the shapes equal; check that all ranks load the same
configuration. While debugging, `TORCH_DISTRIBUTED_DEBUG=DETAIL` compares shapes before every operation (slow).

## Limits
Dumps hold neither the root nor the reduction operator: those mismatches need NCCL's log.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from whichrank.facts.fixes import fix
from whichrank.model.findings import Alternative, Finding, NotEvaluated
from whichrank.rules import wording
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.troubles.trouble import Trouble

CODE = "COLL108"
CAUSE = "size-mismatch"

_FIX = (
    "Make the sizes equal on all ranks: gather the lengths first and pad, or drop the uneven last batch.",
    "Check that every rank built the same model and read the same configuration.",
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if case.lineup is None:
        return NotEvaluated("flight-recorder dumps")
    return [_finding(case, trouble) for trouble in case.troubles if trouble.shape == "size"]


def _finding(case: Case, trouble: Trouble) -> Finding:
    found = wording.argument_mismatch(case, trouble, CODE, CAUSE, _FIX)
    if case.has_dumps or not trouble.hangs or not _in_other_calls(case, trouble):
        return found
    # NCCL's log tells no lines of code: such sizes do.
    other = Alternative(CAUSE, "one call may bring so different sizes")
    return replace(found, cause="conditional-collective", alternatives=(other,), fix=fix("conditional-collective"))


def _in_other_calls(case: Case, trouble: Trouble) -> bool:
    """Whether the sizes are too far apart for one call of the program."""
    from whichrank.timeline.collectives.reported_mismatches import ELSEWHERE  # a diagnosis of dumps needs no messages

    lineup = wording.lineup_of(case)
    calls = [lineup.call_of(row) for row in trouble.meeting.joined.values()]
    sizes = [math.prod(size) for call in calls for size in call.input_sizes[:1]]
    return len(sizes) == len(calls) > 1 and max(sizes) >= ELSEWHERE * max(1, min(sizes))
