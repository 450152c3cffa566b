"""Saving or loading a checkpoint: a rank does not reach the collective that the others wait in.

## What it finds
A rank is inside saving or loading a checkpoint while the others already wait in a collective or barrier.

## Why it happens
Only one rank writes while the rest wait at a barrier, the file system is slow or full, the checkpoint is larger
than the timeout allows, one rank loads from another place.

## How it decides
The rank does not come, and its stack is in `torch.save`, `torch.load`, distributed checkpointing, or a function
named for checkpoints.
The only stack of a job, without any other sign, is half believed; without a rank it names nobody.

## Example
Rank 0 is in `torch.save` at `ckpt.py:88`, ranks 1-7 wait in `barrier #41`.

## Fix
Write in the background or sharded (torch.distributed.checkpoint.async_save), or to local disk first. If the
write is legitimate and only long, put the barrier into a group with a longer timeout.

## Limits
One stack is one moment: a rank that is merely slow looks the same as one that is stuck. Take a second one to
tell.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules.stuck_ranks import judge_held
from whichrank.timeline.case import Case

CODE = "SLOW103"
CAUSE = "rank-stuck-in-checkpoint"
FIX = (
    "Write in the background or sharded (torch.distributed.checkpoint.async_save), or to local disk first.",
    "If the write is legitimate and only long, put the barrier into a group with a longer timeout.",
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return judge_held(case, "checkpoint", CODE, CAUSE, "saving or loading a checkpoint", FIX)
