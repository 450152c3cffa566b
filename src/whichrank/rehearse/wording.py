"""The sentences of a rehearsal's findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from whichrank.rehearse import view
from whichrank.rehearse.positions import Made, Position

if TYPE_CHECKING:
    from whichrank.rehearse.pairs import Blocked
    from whichrank.rehearse.parting import Parting

FIXES = {
    "conditional-collective": (
        (
            "Let every rank make the call: move it out of the branch, or decide the branch on a value that all ranks "
            "share (all_reduce the condition first)."
        ),
    ),
    "rank0-only-collective": (
        (
            "Move the call out of the branch on the rank: every rank of the group has to make it. Only what is local "
            "(printing, writing a file) belongs under the branch."
        ),
    ),
    "uneven-inputs": (
        (
            "Give every rank the same number of batches: drop_last=True with DistributedSampler, or all_reduce(MIN) "
            "the number of steps before the loop."
        ),
        "Or wrap the loop in DistributedDataParallel's join() or torch.distributed.algorithms.Join.",
    ),
    "collective-order": ("Start the collectives in the same order on all ranks (sort what is iterated over).",),
    "process-group-order": (
        "Create and use process groups in the same order on all ranks: every rank calls new_group for every group.",
    ),
    "p2p-deadlock": (
        (
            "Let one side receive first (by the parity of the rank), or use isend/irecv or batch_isend_irecv and wait "
            "afterwards."
        ),
    ),
    "p2p-unmatched": ("Give every send its receive, and every receive its send, on the same group with the same tag.",),
    "size-mismatch": ("Bring the same number of elements on all ranks: pad, or exchange the sizes first.",),
    "dtype-mismatch": ("Convert to the same dtype on all ranks before the call.",),
    "root-mismatch": ("Name the same root (src, dst) on all ranks.",),
    "reduce-op-mismatch": ("Use the same reduce operation on all ranks.",),
    "teardown-hang": ("Decide together when to stop: all_reduce the flag, then leave the loop on all ranks.",),
    "missing-rank-at-init": ("Let every rank reach init_process_group: nothing before it may end or stop a rank.",),
    "world-size-mismatch": ("Give the same world size to all ranks.",),
    "unused-parameters": (
        "Use every parameter in every forward pass on every rank, or pass find_unused_parameters=True.",
    ),
    "replica-divergence": (
        "Make what the optimizer uses equal on all ranks: learning rate, schedule, clipping and the set of parameters.",
    ),
    "rank-exception": ("Fix the exception; errors that only one rank sees must end or be shared by all ranks.",),
}


def fixes(cause: str) -> tuple[str, ...]:
    return FIXES.get(cause, ("Look at both places: what makes these ranks go different ways?",))


def ranks(numbers: Iterable[int]) -> str:
    """`rank 3`, `ranks 0-2, 5`."""
    ordered = sorted(set(numbers))
    runs: list[list[int]] = []
    for number in ordered:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs[:10])
    more = f" and {len(runs) - 10} more" if len(runs) > 10 else ""
    return f"{'rank' if len(ordered) == 1 else 'ranks'} {text}{more}"


def do(numbers: Iterable[int], many: str, one: str) -> str:
    """`Rank 3 waits`, `Ranks 0-2 wait`."""
    members = sorted(set(numbers))
    text = ranks(members)
    return f"{text[0].upper()}{text[1:]} {one if len(members) == 1 else many}"


def parted(found: Parting, why: str) -> str:
    who, others = ranks(found.deviating), ranks(found.others)
    wait = f"{others} {'waits' if len(found.others) == 1 else 'wait'}"
    verb = "s" if len(found.deviating) == 1 else ""
    call = described(found.call)
    theirs = described(found.theirs) if found.theirs else ""
    if found.manner == "skipped":
        text = f"{who} skip{verb} {call} and go{'es' if verb else ''} on to {theirs}; {wait}"
    elif found.manner == "added":
        text = f"{who} call{verb} {theirs}, which the other ranks don't; {wait} in {call}"
    elif found.manner == "swapped":
        text = f"{who} call{verb} {theirs} before {call}; {others} the other way round"
    elif found.manner == "ended":
        text = f"{who} ended while {wait} in {call}"
    else:
        text = f"{who} {'is' if verb else 'are'} in {theirs or 'something else'} while {wait} in {call}"
    return f"{text[0].upper()}{text[1:]}. {why}".strip()


def described(call: Made) -> str:
    return f"{call.name} #{call.seq}{f' at {call.place}' if call.place else ''}"


def because(around: view.Surroundings) -> str:
    """What the source says about a line."""
    if around.on_rank:
        return f"It stands under `if {around.on_rank[1][:120]}` (line {around.on_rank[0]})."
    if around.swallowed:
        return f"An exception in the `try` of line {around.swallowed} is caught, and the rank goes on without the call."
    if around.conditions:
        return f"It stands under `if {around.conditions[0][1][:120]}` (line {around.conditions[0][0]})."
    return ""


def brought(what: str, call: Made) -> str:
    signature = call.signature
    if what == "size":
        return f"with {signature.get('count') or signature.get('splits_in') or 0} elements"
    if what == "root":
        return f"with root {signature.get('root')}"
    if what == "reduce":
        return f"by {signature.get('reduce')}"
    return f"with {signature.get('dtype')}"


def paired(found: Blocked, positions: dict[int, Position]) -> str:
    said = []
    for rank in found.ranks[:6]:
        call = positions[rank].call
        if call is not None:
            where = f" at {call.place}" if call.place else ""
            said.append(f"rank {rank} waits in {call.op} with rank {found.waits.get(rank)}{where}")
    text = "; ".join(said)
    if found.cycle:
        return f"Sends and receives wait for each other in a circle: {text}."
    guilty = [
        f"rank {r} is in {positions[r].key[0]}{f' at {positions[r].place}' if positions[r].place else ''}"
        for r in found.guilty[:3]
    ]
    return f"{text}, but the partner does not come: {'; '.join(guilty)}."


def ended_or_elsewhere(missing: Sequence[Position]) -> str:
    if not missing:
        return "never started"
    first = missing[0]
    if first.state == "ended":
        return "ended before"
    return f"{first.state}{f' at {first.place}' if first.place else ''}"


def standing(positions: dict[int, Position]) -> str:
    by_key: dict[Any, list[int]] = {}
    for rank, position in positions.items():
        by_key.setdefault(position.key, []).append(rank)
    said = []
    for key, members in list(by_key.items())[:5]:
        place = positions[members[0]].place
        said.append(f"{ranks(members)} in {key[0]}{f' at {place}' if place else ''}")
    return "; ".join(said)


def error(position: Position) -> str:
    told = position.error
    if told is None:
        return f"exit code {position.code}"
    lines = [line for line in told["message"].strip().splitlines() if line.strip()]
    place = f" at {position.place}" if position.place else ""
    return f"{told['type']}: {lines[0][:300] if lines else ''}{place}"


def replicas(told: dict[str, Any], culprits: Sequence[int], ordered: Sequence[Sequence[int]]) -> str:
    who = ranks(culprits) if culprits else " against ".join(ranks(one) for one in list(ordered)[:4])
    text = f"After optimizer step {told['step']} the model that DistributedDataParallel keeps equal differs: {who}."
    rates = {int(rank): one.get("rates") for rank, one in told["ranks"].items()}
    different = {str(rate) for rate in rates.values()}
    if len(different) > 1:
        odd = culprits[0] if culprits else ordered[0][0]
        other = next(rank for rank, rate in rates.items() if str(rate) != str(rates[odd]))
        text += f" The learning rate is {rates[odd]} on rank {odd} and {rates[other]} on rank {other}."
    return text


def side(members: Sequence[int], positions: dict[int, Position]) -> dict[str, Any]:
    """One side of a divergence, for the JSON."""
    first = positions[members[0]]
    place = first.place
    op = first.call.op if first.call else first.what or first.state
    code = {"file": place.file, "line": place.line, "function": place.function} if place else None
    stack = [{"file": f.file, "line": f.line, "function": f.function} for f in first.frames]
    return {"ranks": list(members), "op": op, "code": code, "stack": stack, "state": first.state}
