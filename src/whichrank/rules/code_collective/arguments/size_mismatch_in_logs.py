"""torch's own check reports different sizes in one collective.

## What it finds
Ranks that bring tensors of different shape to the same collective, or build different models, by the words of torch
or Gloo themselves.

## Why it happens
Uneven last batches that are gathered without padding, a dimension that the number of ranks does not divide, a
branch that some ranks skip so that gradient buckets differ, another configuration on one host.

## How it decides
`TORCH_DISTRIBUTED_DEBUG=DETAIL` prints what two ranks bring; over all ranks' messages the minority is the odd one.
Without it, and without dumps, the elements (`NumelIn`) in the timeouts of the watchdogs tell the same.
Gloo says that the data it received has another size, without saying whose: the odd one is who ended by it, where the
dumps show that all others brought the same. DDP says which parameters differ from
rank 0's: if everybody but rank 0 says so, rank 0 is the odd one. It compares the number of parameters first: none at
all, or more than a million, is no model's number but what was gathered while a rank was in another collective, or
what never arrived; then nobody is named. Ranks within a group are global only where the
group is the job.

## Example
`Rank 1 is running collective: … TensorShape=[1435, 16] …, but Rank 2 is running … TensorShape=[1436, 16]`

## Fix
Gather the lengths first and pad to the largest; make every rank take the same path through the model.

## Limits
Two ranks that differ have no majority: then nobody is named.
"""

from __future__ import annotations

from msgspec.structs import replace

from whichrank.model.findings import Finding, Grade, NotEvaluated
from whichrank.records.events.communication import GlooMismatch
from whichrank.records.events.processes import DdpError
from whichrank.rules import building, wording
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.collectives import reported_mismatches
from whichrank.timeline.collectives.meetings import Meeting
from whichrank.timeline.collectives.troubles.trouble import NOT_THERE
from whichrank.timeline.job_state import deaths, statements
from whichrank.timeline.job_state.statements import Statement
from whichrank.timeline.job_state.waiting_lines import two_sides

CODE = "COLL121"
CAUSE = "size-mismatch"

_CLAIM = Claim(
    CODE,
    CAUSE,
    fix=(
        "Make the sizes equal on all ranks: gather the lengths first and pad, or drop the uneven last batch.",
        "If these are gradient buckets, some rank skipped part of the model: let every rank run every branch.",
    ),
    alternatives=(
        ("conditional-collective", "a rank that skipped a branch brings another tensor to the same place"),
        ("unused-parameters", "a rank that skipped a part of the model is one gradient bucket ahead"),
        ("collective-order", "the calls may be different operations of the program"),
    ),
)
_SAID_BY_NCCL = replace(
    _CLAIM,
    alternatives=(
        ("wrong-environment", "NCCL_ALGO, NCCL_PROTO or another setting may differ between the ranks"),
        *_CLAIM.alternatives,
    ),
)
_EITHER = replace(
    _CLAIM,
    alternatives=(
        ("collective-order", "they may call different operations"),
        ("conditional-collective", "one rank may have skipped or added a call"),
    ),
)
_ELSEWHERE = Claim(
    CODE,
    "conditional-collective",
    fix=(
        "Let every rank wrap the model at the same place: look for a branch by rank above it (loading, saving).",
        "If all ranks do, test the links between the GPUs: NCCL_P2P_DISABLE=1, and nccl-tests with checks (-c 1).",
    ),
    alternatives=(
        ("collective-desync", "a rank may be one call behind or ahead"),
        ("p2p-silent-corruption", "what was gathered may not have arrived"),
        ("size-mismatch", "the models may differ"),
    ),
)
_MOST_PARAMETERS = 1_000_000
"""Tensors of a model: the largest have some hundred thousand."""
_ITEM_BYTES = (1, 2, 4, 8)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    found = [_finding(case, m) for m in reported_mismatches.mismatches(case) if m.aspect == "shape"]
    return found or _models(case) or _plain(case)


def _finding(case: Case, mismatch: reported_mismatches.Mismatch) -> Finding:
    message = (
        f"Ranks bring different sizes to {mismatch.op}{'' if mismatch.seq is None else f' #{mismatch.seq}'}: "
        f"{reported_mismatches.told(case, mismatch)}."
    )
    sure = Grade.HINTS if reported_mismatches.are_buckets(mismatch) else Grade.SUPPORTS
    return building.found(case, building.hanging(_CLAIM, mismatch.hangs), mismatch.signs, message, sure, mismatch.ranks)


def _counts(sign: Statement) -> tuple[int, ...]:
    return sign.event.counts if isinstance(sign.event, DdpError) else ()


def _models(case: Case) -> list[Finding]:
    """DDP compares every rank's parameters with those of rank 0."""
    told = statements.of_kind(case, DdpError, where=lambda e: e.what == "param_shape")
    counts = statements.of_kind(case, DdpError, where=lambda e: e.what == "param_count")
    if not told and not counts:
        return []
    wild = [s for s in counts if not _is_plausible(_counts(s))]
    if wild and not told:
        numbers = " and ".join(map(str, _counts(wild[0])))
        why = "one rank was in another collective, or its data did not arrive"
        message = f"DDP gathered {numbers} as numbers of parameters: {why}."
        return [building.found(case, _ELSEWHERE, wild, message, Grade.HINTS)]
    differing = {s.event.group_rank for s in told if s.event and s.event.group_rank is not None}
    world = reported_mismatches.is_world(case, [s.event for s in told if s.event])
    most = len(differing) > 1 and len(differing) >= case.world - 1 > 0
    ranks = (0,) if most else tuple(sorted(differing)) if world else statements.ranks_of(told)
    what = "its parameters have other sizes" if told else "it has another number of parameters"
    message = f"{building.who(case, ranks, told)} built another model than the others: {what}."
    return [building.found(case, _CLAIM, [*told, *counts], message, Grade.PROVES if told else Grade.SUPPORTS, ranks)]


def _is_plausible(counts: tuple[int, ...]) -> bool:
    """DDP refuses a model without parameters before it compares."""
    return all(0 < count <= _MOST_PARAMETERS for count in counts)


def _plain(case: Case) -> list[Finding]:
    """Gloo's and NCCL's transports notice a size that they do not expect, and name nobody; where dumps or stacks show
    who called something else, that is why."""
    if case.has_dumps and any(trouble.ranks and trouble.shape not in NOT_THERE for trouble in case.troubles):
        return []
    if not case.troubles and case.stacks and two_sides(case) is not None:
        return []
    plain = reported_mismatches.other_sizes(case)
    more = statements.beside(plain, statements.known(case, CAUSE))
    signs: list[Statement] = [*plain, *more]
    if not signs:
        return []
    event = signs[0].event
    got, expected = (event.got, event.expected) if isinstance(event, GlooMismatch) else (None, None)
    sizes = f": {got} bytes came where {expected} were expected" if got is not None else ""
    sure = Grade.SUPPORTS if plain else statements.surest(more)
    meeting = _all_but_one(case)
    if meeting is not None and case.lineup is not None:
        (rank,) = meeting.unseen
        others, row = wording.ranks_text(meeting.joined), next(iter(meeting.joined.values()))
        message = f"Rank {rank} brought another size than {others} to {wording.step(case.lineup, row)}{sizes}."
        return [building.found(case, _CLAIM, signs, message, sure, (rank,))]
    if sure is Grade.HINTS:  # a message that says no more than that ranks differ
        claim = building.hanging(_EITHER, any("hanging" in s.text for s in signs))
        message = "Ranks bring different sizes to one collective, or are not in the same one; nothing says which ranks."
        return [building.found(case, claim, signs, message, sure)]
    noticed = statements.ranks_of(signs) or (deaths.only_one_failed(case) if plain else ())
    where = f" ({wording.ranks_text(noticed)} noticed)" if noticed else ""
    odd = (_odd_one(case, noticed) or _unlike_the_others(case, noticed, got, expected)) if plain else ()
    message = f"Ranks bring different sizes to one collective{sizes}{where}."
    if odd:
        message = f"{building.who(case, odd)} brought another size to a collective than the others{sizes}{where}."
    claim = _CLAIM if isinstance(event, GlooMismatch) else _SAID_BY_NCCL
    return [building.found(case, claim, signs, message, sure, odd)]


def _odd_one(case: Case, noticed: tuple[int, ...]) -> tuple[int, ...]:
    """Gloo fails where more comes than fits: at all ranks but the one that brought more.

    One rank alone that noticed may be the one with less, or the first of many: the launcher ends the others."""
    rest = tuple(rank for rank in range(case.world) if rank not in noticed)
    return rest if len(noticed) > 1 and len(rest) == 1 else ()


def _unlike_the_others(case: Case, noticed: tuple[int, ...], got: int | None, expected: int | None) -> tuple[int, ...]:
    """The one rank that noticed, where what came to it is what all others brought last, and what it expected is not."""
    lineup = case.lineup
    if lineup is None or len(noticed) != 1 or got is None or expected is None:
        return ()
    others = [lineup.rows(rank) for rank in range(case.world) if rank not in noticed]
    brought = {lineup.signature_of(int(rows[-1])).inputs if len(rows) else None for rows in others}
    if len(others) < 2 or len(brought) != 1 or not (sizes := brought.pop()):
        return ()
    elements = sum(sizes)
    came, own = (elements > 0 and size % elements == 0 and size // elements in _ITEM_BYTES for size in (got, expected))
    return noticed if came and not own else ()


def _all_but_one(case: Case) -> Meeting | None:
    """The collective to which all brought the same, but for one that is not heard of any more."""
    for meeting in case.meetings.pending:
        complete = not (meeting.p2p or meeting.open_ended or meeting.absent or meeting.disagrees)
        if complete and len(meeting.unseen) == 1 and len(meeting.joined) > 1:
            return meeting
    return None
