"""What ranks say they bring to the same collective, from torch's checks and watchdogs: who is the odd one out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from whichrank.records.events.base import Event, OfGroup
from whichrank.records.events.collectives import FingerprintMismatch
from whichrank.records.events.communication import GlooMismatch
from whichrank.records.events.watchdog import WatchdogProgress, WatchdogTimeout
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.stuck import SENT, of_all_ranks
from whichrank.timeline.job_state import statements
from whichrank.timeline.job_state.statements import Statement, statement

_BUCKET = 1_000_000
"""Elements: the first bucket of DDP holds 1 MiB, others 25."""
_NEARLY = 1000
"""The part of a buffer by which two differ that hold the same layers, one of another size: a longer vocabulary."""
ELSEWHERE = 1000
"""Times: ranks that bring so different amounts are not in the same call of the program."""
_SAME_SIZE = (
    "ALLREDUCE", "BROADCAST", "REDUCE", "ALLGATHER", "_ALLGATHER_BASE", "REDUCE_SCATTER", "_REDUCE_SCATTER_BASE",
)  # fmt: skip
"""Operations to which every rank brings as much as the others."""
ASPECTS = ("seq", "op", "shape", "dtype")
_TRUNCATED = ("message truncated : receiving", "collective mismatch error")


def other_sizes(case: Case) -> list[Statement]:
    """Where Gloo's or NCCL's transport noticed a size that it did not expect."""
    return [*statements.of_kind(case, GlooMismatch), *statements.said_by_nccl(case, *_TRUNCATED)]


class Mismatch(Struct, frozen=True):
    """One disagreement among the members of a group."""

    aspect: str
    """The first of ASPECTS in which they differ: a later one may only follow from it. `call` where the sizes are so
    different that the program calls the operation at two places."""
    brought: dict[int, str]
    """By rank within the group, what each brought of that aspect."""
    odd: tuple[int, ...]
    """The minority, by rank within the group; empty where there is none."""
    ranks: tuple[int, ...]
    """The same as global ranks, or all of two equal sides; empty where the group is not known to be the whole job."""
    signs: tuple[Statement, ...]
    op: str
    seq: int | None
    hangs: bool = False
    """They wait for each other; torch's own check ends them."""
    least: tuple[int, ...] = ()
    """Where the aspect is `call`: the ranks in the smallest of the calls."""


def mismatches(case: Case) -> list[Mismatch]:
    """Disagreements that `TORCH_DISTRIBUTED_DEBUG=DETAIL` printed, one per sequence number; or the watchdogs."""
    piles: dict[int | None, list[FingerprintMismatch]] = {}
    for event in case.events(FingerprintMismatch):
        piles.setdefault(event.seq_a, []).append(event)
    return [found for pile in piles.values() if (found := _read(case, pile)) is not None] or _timed_out(case)


def _timed_out(case: Case) -> list[Mismatch]:
    """What the ranks timed out in, by their watchdogs, where it differs at one number of a group of all ranks.

    The recorder knows more, where it has left a dump.
    """
    if case.lineup is not None:
        return []
    told = [e for e in (*case.events(WatchdogProgress), *case.events(WatchdogTimeout)) if e.rank is not None]
    found = []
    for spoken in of_all_ranks(told).values():
        piles: dict[int | None, dict[int, WatchdogTimeout]] = {}
        timeouts = [event for event in spoken if isinstance(event, WatchdogTimeout)]
        unnumbered = all(event.seq is None for event in timeouts)  # before torch 1.13
        calls: dict[tuple[int, int | None], set[tuple[str, int | None]]] = {}
        for event in timeouts:
            if event.rank is not None and (event.seq is not None or unnumbered) and event.op not in SENT:
                piles.setdefault(event.seq, {}).setdefault(event.rank, event)
                calls.setdefault((event.rank, event.seq), set()).add((event.op, event.numel_in))
        for (rank, seq), brought in calls.items():
            if len(brought) > 1 and not unnumbered:  # two groups have come to the same number
                del piles[seq][rank]
        found += [m for seq, pile in piles.items() if (m := _differing(case, seq, pile)) is not None]
    return found


def _differing(case: Case, seq: int | None, pile: dict[int, WatchdogTimeout]) -> Mismatch | None:
    ops = {rank: event.op for rank, event in sorted(pile.items()) if event.op}
    sizes = {
        rank: str(event.numel_in)
        for rank, event in sorted(pile.items())
        if event.numel_in is not None and event.op in _SAME_SIZE
    }
    aspect, brought = ("op", ops) if len(set(ops.values())) > 1 or seq is None else ("shape", sizes)
    if len(set(brought.values())) < 2:
        return None
    least: tuple[int, ...] = ()
    if aspect == "shape" and max(map(int, brought.values())) >= ELSEWHERE * max(1, min(map(int, brought.values()))):
        aspect, brought = "call", {rank: f"{ops[rank]} of {size} elements" for rank, size in sizes.items()}
        fewest = min(map(int, sizes.values()))
        least = tuple(rank for rank, size in sizes.items() if int(size) == fewest)
    odd = minority(brought)
    signs = tuple(statement(case, pile[rank]) for rank in sorted(brought, key=lambda rank: (rank not in odd, rank)))
    return Mismatch(aspect, brought, odd, odd, signs, next(iter(ops.values())), seq, hangs=True, least=least)


def _read(case: Case, pile: list[FingerprintMismatch]) -> Mismatch | None:
    prints: dict[int, dict[str, str]] = {}
    # What a rank says of itself comes first: of the other one torch prints garbage where the tensors differ in number.
    sides = [(e.rank_a, (e.seq_a, e.op_a, e.shape_a, e.dtype_a)) for e in pile]
    sides += [(e.rank_b, (e.seq_b, e.op_b, e.shape_b, e.dtype_b)) for e in pile]
    for rank, values in sides:
        if rank is not None:
            said = ("" if value is None else str(value) for value in values)
            prints.setdefault(rank, dict(zip(ASPECTS, said, strict=True)))
    aspect = next((a for a in ASPECTS if len({told[a] for told in prints.values()}) > 1), None)
    if aspect is None:
        return None
    brought = {rank: told[aspect] for rank, told in sorted(prints.items())}
    odd = minority(brought)
    ranks = (odd or _two_sides(brought)) if is_world(case, pile, len(brought)) else ()
    first = pile[0]
    return Mismatch(aspect, brought, odd, ranks, tuple(statement(case, e) for e in pile), first.op_a, first.seq_a)


def minority(brought: dict[int, str]) -> tuple[int, ...]:
    """Ranks that brought something else than most; nobody where no side has more than half."""
    counts = Counter(brought.values()).most_common()
    if not counts or counts[0][1] * 2 <= len(brought):
        return ()
    return tuple(rank for rank, value in brought.items() if value != counts[0][0])


def _two_sides(brought: dict[int, str]) -> tuple[int, ...]:
    """All of them, where half brought one thing and half another: no majority says who is right."""
    counts = Counter(brought.values())
    even = len(counts) == 2 and len(set(counts.values())) == 1
    return tuple(brought) if even and len(brought) > 2 else ()


def is_world(case: Case, told: Sequence[Event], members: int = 0) -> bool:
    """Whether ranks within the group of these events are global: it is the default one, they are equal where both are
    known, or all are there."""
    both = [(e.rank, e.group_rank) for e in told if e.rank is not None and e.group_rank is not None]
    if any(rank != inside for rank, inside in both):
        return False
    named = {e.pg_desc for e in told if isinstance(e, OfGroup) and e.pg_desc}
    if named == {"default_pg"}:
        return True
    # Where nothing says how many ranks there are, a group of which every member is accounted for is the whole job.
    whole = members > 1 and (members == case.world or (members > 2 and not case.world))
    return whole or any(rank == inside and rank > 0 for rank, inside in both)


def is_rank0_alone(found: Mismatch) -> bool:
    """Whether rank 0 waits in an operation of its own, and all others in one and the same."""
    return found.aspect == "op" and found.hangs and found.ranks == (0,)


def is_rank0_apart(found: Mismatch) -> bool:
    """Whether nobody brings what rank 0 brings; of two ranks this holds for both."""
    return 0 in found.brought and list(found.brought.values()).count(found.brought[0]) == 1


def are_buckets(found: Mismatch) -> bool:
    """Whether these are flat gradient buffers of different parts of the model: reductions of one long dimension."""
    if found.aspect != "shape" or "ALLREDUCE" not in found.op:
        return False
    lengths = [int(value) if value.isdecimal() else 0 for value in found.brought.values()]
    return min(lengths) >= _BUCKET and (max(lengths) - min(lengths)) * _NEARLY >= max(lengths)


def told(case: Case, found: Mismatch) -> str:
    """`rank 2 brought [5], ranks 0, 1, 3 brought [4]`."""
    sides: dict[str, list[int]] = {}
    for rank, value in found.brought.items():
        sides.setdefault(value, []).append(rank)
    ordered = sorted(sides.items(), key=lambda side: len(side[1]))
    words = [
        f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:8]))}: {value}" for value, ranks in ordered
    ]
    inside = "" if found.ranks or is_world(case, [s.event for s in found.signs if s.event], len(found.brought)) else (
        " (numbers within the group)"
    )  # fmt: skip
    return "; ".join(words[:3]) + inside
