"""Replicas that must be equal differ, by the checksums of their guards.

## What it finds
A parameter, a tensor of the optimizer's state, a constant buffer, a learning rate or another setting of the optimizer
that is not the same on all ranks that hold a copy: which rank is the odd one, in which tensor, since which step.
Parameters that were equal and drift apart on all ranks, while others of the same optimizer stay equal. Or a resumed job
that does not hold what the checkpoint held when it was saved. Or random numbers that differ between ranks that work on
one batch together (tensor parallel) and drew the same ones before.

## Why it happens
A rank missed the broadcast at the start, was seeded differently or did not load the checkpoint; its schedule has
another length; a bit flipped in its memory; its GPU computed an update wrongly; code changed a tensor on one rank.

## How it decides
`whichrank run --guard` has every rank write down checksums of rotating slices, weighted by position. Which ranks must
agree is read off DistributedDataParallel, FSDP and the placements of DTensors. For plain modules it is learned: tensors
that stayed equal while their values changed at three looks are taken for replicas. Parameters that come to differ on
all ranks at once are told where others stay equal: else the ranks train by themselves for a while and are averaged
later. The majority names the odd rank; of two replicas both are candidates. Where the learning rate differs too, that
is told as the reason. After a load, the parameters and the optimizer's state before the first step are compared with
those at the save of the same file, where the guard saw both; most parameters must be as saved, or the file was meant
for something else. An optimizer that begins without state, where the file holds it, is told too.

## Example
    0.weight (parameter), checksum 37e27740 at step 18     (rank 1)
    0.weight (parameter), checksum 7cd7bde9 at step 18     (ranks 0, 2, 3)

## Fix
Restart from the last checkpoint before that step (it is named where the guard saw it being written). Then make all
ranks compute the same: seeds, schedules and loaded checkpoints from one place.

## Limits
A slice is looked at every K steps (the guard prints K): the step is known to that precision. Replicas that may drift
apart between two averagings (post-local SGD) are not compared.
"""

from __future__ import annotations

from whichrank.model.findings import Alternative, Finding, Grade, NotEvaluated
from whichrank.rules import guard_findings
from whichrank.timeline.case import Case
from whichrank.timeline.guard.resumes import STATE
from whichrank.timeline.guard.wrong import Kind, Wrong

CODE = "SILE301"
CAUSE = "replica-divergence"

_ORDER: tuple[Kind, ...] = ("rate", "setting", "replica", "adrift", "random", "resume")
"""What explains more first."""


def judge(case: Case) -> list[Finding] | NotEvaluated:
    differing = guard_findings.wrongs(case, *_ORDER)
    if isinstance(differing, NotEvaluated):
        return differing
    findings = []
    explained: set[tuple[int, ...]] = set()
    # A setting that differs explains the tensors that do.
    for wrong in sorted(differing, key=lambda w: (_ORDER.index(w.kind), w.step)):
        if wrong.odd in explained and wrong.kind not in ("rate", "setting"):
            continue
        explained.add(wrong.odd)
        tensors = next((w for w in differing if w.kind == "replica" and w.odd == wrong.odd and w is not wrong), None)
        findings.append(_finding(case, wrong, tensors))
    return findings


def _finding(case: Case, wrong: Wrong, tensors: Wrong | None) -> Finding:
    grade = Grade.SUPPORTS if wrong.learned else Grade.PROVES
    fix = (guard_findings.go_back(case, wrong), *_advice(wrong))
    return guard_findings.found(
        case, wrong, CODE, CAUSE, _message(wrong, tensors), grade, fix,
        places=[str(wrong.detail["place"])] if wrong.detail.get("place") else [],
        alternatives=() if wrong.kind != "replica" or wrong.step < 0 else (
            Alternative("gpu-computes-wrong", "a GPU that computed one update wrongly leaves the same trace"),
        ),
    )  # fmt: skip


def _message(wrong: Wrong, tensors: Wrong | None) -> str:
    who = guard_findings.who(wrong)
    if wrong.kind == "random":
        verb = "draws" if len(wrong.odd) == 1 else "draw"
        return (
            f"{who} {verb} other random numbers {guard_findings.since(wrong)} than the ranks that work on the same "
            "batch: their dropout masks differ now."
        )
    if wrong.kind == "resume":
        verb, path = "holds" if len(wrong.odd) == 1 else "hold", wrong.detail["path"]
        if wrong.tensor == STATE:
            return f"{who} loaded {path} and went on without the optimizer's state that is in it."
        kind = "" if wrong.tensor == "parameter" else f" ({wrong.tensor})"
        return (
            f"{who} {verb} another {wrong.module}{kind} than the checkpoint {path} did when it was saved, "
            f"after loading it: {wrong.detail['count']} tensors."
        )
    if wrong.kind == "adrift":
        more = f" and {wrong.others} more parameter{'s' * (wrong.others > 1)}" if wrong.others else ""
        verb = "drift" if wrong.others else "drifts"
        return (
            f"{wrong.module}{more} {verb} apart on all ranks {guard_findings.since(wrong)}, while other parameters of "
            "the model stay equal: the averaging of gradients leaves them out."
        )
    if wrong.kind != "replica":
        theirs = {value for rank, value in wrong.values.items() if rank not in wrong.odd}
        mine = {value for rank, value in wrong.values.items() if rank in wrong.odd}
        values = (
            f"{' / '.join(sorted(mine))} instead of {' / '.join(sorted(theirs))}"
            if mine
            else " / ".join(sorted(theirs))
        )
        drift = f"; its {tensors.module} ({tensors.tensor}) differs {guard_findings.since(tensors)}" if tensors else ""
        verb = "steps" if len(wrong.odd) == 1 else "step"
        return f"{who} {verb} with another {wrong.tensor} {guard_findings.since(wrong)}: {values}{drift}."
    more = f" and {wrong.others} more" if wrong.others else ""
    verb = "has" if len(wrong.odd or wrong.among) == 1 or (not wrong.odd and len(wrong.among) == 2) else "have"
    when = guard_findings.since(wrong)
    return f"{who} {verb} another {wrong.module} ({wrong.tensor}){more} than the other replicas {when}."


def _advice(wrong: Wrong) -> tuple[str, ...]:
    if wrong.kind == "rate":
        return ("Compute the length of the schedule from a number that all ranks share: all_reduce it first.",)
    if wrong.kind == "random":
        return (
            "Give random numbers that one rank alone draws (for logging, for an evaluation) a generator of their own.",
        )
    if wrong.kind == "resume" and wrong.tensor != "parameter":
        return ("Give the checkpoint's state to optimizer.load_state_dict, with the parameters in the same order.",)
    if wrong.kind == "resume":
        return (
            "Load with strict=True, and look at what load_state_dict returns: names that are missing or unexpected.",
            "Look for code that initializes, ties or casts tensors after the load.",
        )
    if wrong.kind == "adrift":
        return (
            "Average the gradients of every parameter that is trained, also of those that were frozen until then.",
            "With DistributedDataParallel, set requires_grad before it is made: it averages what was trained then.",
        )
    if wrong.kind == "setting":
        return ("Set the optimizer up from the same values on every rank.",)
    if wrong.step < 0:
        return (
            "Broadcast the model from rank 0 after creating or loading it, or seed and load it the same on every rank.",
        )
    return (
        "Look for code that changes this tensor on one rank alone (a branch on the rank, a missed broadcast).",
        "If there is none, test the memory and the GPU of that rank: dcgmi diag -r 4.",
    )
