"""A loop with collectives whose length differs between ranks.

What it finds: a `for` loop over this rank's own shard, data set or filtered list, with a collective
(DistributedDataParallel's backward included) in its body.

Why it happens: shards are seldom equal: a slice `[rank::world_size]`, one file per rank,
samples dropped by a filter. The rank that runs out first leaves the loop, and the others wait for it.

How it decides: the length of what is looped over is followed like a value. A DistributedSampler, Accelerate's
prepare() and samplers of the project that pad or round make it equal; so does `zip` with a range whose length
was all-reduced. Loops inside `with model.join()` are fine.

Example: `for batch in DataLoader(Shard(rank)): loss = ddp(batch); loss.backward()`.

Fix: use DistributedSampler, cut to the shortest shard (all-reduce the count with MIN), or wrap the loop in
`join()`.

Limits: data sets from other libraries count as equally long. A sampler of the project that mentions padding,
ceil or drop_last is believed.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.records.code import Parting
from whichrank.rules.code_findings import Said, because, main_kind, on_partings, shown

CODE = "LINT105"
CAUSE = "uneven-inputs"


def judge(case: Any) -> list[Finding] | NotEvaluated:
    return on_partings(case, (CODE, CAUSE), _concerns, _say)


def _concerns(parting: Parting) -> bool:
    return parting.shape == "loop" and main_kind(parting) != "order"


def _say(parting: Parting) -> Said:
    message = (
        f"Ranks take different numbers of turns through `{parting.test}`, and each turn calls "
        f"{shown(parting.concerned)}: the length depends on {because(parting.reasons)}."
    )
    fix = (
        "Give every rank the same number of turns: a DistributedSampler, or the minimum by all_reduce.",
        "Or let ranks run out of data: `with model.join():` around the loop (DDP).",
    )
    return Said(message, fix)
