"""Which ranks parted from the others, where, and how: they skipped a call, made one more, swapped two, or left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from whichrank.rehearse.positions import Key, Made, Position, Ways

Manner = Literal["skipped", "added", "swapped", "left", "ended", "differs"]


@dataclass(frozen=True, slots=True)
class Parting:
    """Two sides of a divergence."""

    deviating: tuple[int, ...]
    others: tuple[int, ...]
    """Those that wait for them."""
    manner: Manner
    call: Made
    """What the others wait in."""
    theirs: Made | None
    """What the deviating ranks are in; None if they have ended."""
    certain: bool
    """False where it is one against one, and nobody can tell who is wrong."""


def sides(positions: dict[int, Position]) -> dict[Key, list[int]]:
    """Ranks by what they are in."""
    found: dict[Key, list[int]] = defaultdict(list)
    for rank, position in positions.items():
        found[position.key].append(rank)
    return dict(found)


def missing(position: Position, positions: dict[int, Position], groups: dict[str, Any]) -> set[int]:
    """The ranks that a waiting rank waits for."""
    call = position.call
    if call is None:
        return set()
    members = groups[call.group]["members"]
    if call.op in ("send", "recv"):
        peer = call.signature["peer"]
        return {members[peer]} if peer >= 0 else set(members) - {position.rank}
    here = {
        rank
        for rank, other in positions.items()
        if other.call is not None and other.call.group == call.group and other.call.seq == call.seq
        and other.call.op not in ("send", "recv")
    }  # fmt: skip
    agreeing = {rank for rank in here if positions[rank].key == position.key}
    return set(members) - agreeing


def find(positions: dict[int, Position], groups: dict[str, Any]) -> Parting | None:
    """The parting, if some rank waits in a collective for ranks that are elsewhere."""
    waits = {rank: missing(p, positions, groups) for rank, p in positions.items() if p.call is not None}
    collective = {r for r in waits if positions[r].call.op not in ("send", "recv")}  # type: ignore[union-attr]
    if not collective:
        return None
    guilty, certain = _deviating(positions, waits)
    others = [rank for rank in sorted(collective) if rank not in guilty and waits[rank] & guilty]
    if not others:
        return None
    first = _largest(others, positions)
    call = positions[first].call
    if call is None:
        return None
    same = tuple(rank for rank in others if positions[rank].key == positions[first].key)
    theirs = _in_question(guilty & waits[first] or guilty, positions)
    manner = _manner(positions[theirs], positions[first])
    return Parting(tuple(sorted(guilty)), same, manner, call, positions[theirs].call, certain)


def _deviating(positions: dict[int, Position], waits: dict[int, set[int]]) -> tuple[set[int], bool]:
    """Those who did what they never did before; else those who have ended or are fewer."""
    awaited = set().union(*waits.values()) if waits else set()
    ways = Ways(positions)
    odd = {
        rank
        for rank, position in positions.items()
        if position.state != "ended" and rank in awaited and ways.strange(rank)
    }
    if odd and len(odd) < len(positions) / 2:
        return odd, True
    by_side = {key: set(ranks) for key, ranks in sides(positions).items()}
    ended = {rank for rank, position in positions.items() if position.state == "ended"}
    if ended:
        staying = set(positions) - ended
        fresh = all(_never_by(positions[rank], [positions[e] for e in ended]) for rank in staying)
        # A call that nobody else ever made is the callers' mistake; a call that all made before is missed.
        alone = fresh and (len(staying) < len(ended) or staying == {0})
        return (staying if alone else ended), True
    smallest = min(by_side.values(), key=lambda ranks: (len(ranks), min(ranks) != 0))
    sizes = sorted(len(ranks) for ranks in by_side.values())
    certain = len(sizes) > 1 and sizes[0] < sizes[-1]
    smaller = {rank for ranks in by_side.values() if len(ranks) == len(smallest) for rank in ranks}
    if len(by_side) > 2 and len(smaller) > len(smallest):
        smallest = {rank for rank in smaller if rank in awaited} or smallest
        certain = len(smallest) < len(positions) / 2
    return smallest, certain


def _never_by(position: Position, others: Sequence[Position]) -> bool:
    return position.call is not None and all(
        position.call.key not in [call.key for call in other.history] for other in others
    )


def _largest(ranks: Sequence[int], positions: dict[int, Position]) -> int:
    by_key: dict[Key, list[int]] = defaultdict(list)
    for rank in ranks:
        by_key[positions[rank].key].append(rank)
    return max(by_key.values(), key=len)[0]


def _in_question(ranks: set[int], positions: dict[int, Position]) -> int:
    return min(ranks, key=lambda rank: (positions[rank].call is None, rank))


def _manner(theirs: Position, ours: Position) -> Manner:
    """How the way of a deviating rank differs from that of another."""
    if theirs.state == "ended":
        return "ended"
    if theirs.call is None or ours.call is None:
        return "left"
    if theirs.key == ours.key:
        return "differs"
    a, b = theirs.coming, ours.coming
    # Going round a loop again looks like one more call; but a call that all make is not the one too much.
    everyday = theirs.key in {call.key for call in ours.history}
    best: tuple[float, int, Manner] = (0.0, 0, "left")
    for shift in range(1, min(5, len(b))):
        best = max(best, (_agreement(a, b[shift:]), -2 * shift, "skipped"))
    for shift in range(1, min(7, len(a))):
        best = max(best, (_agreement(a[shift:], b), -2 * shift - (20 if everyday else 1), "added"))
    if len(a) > 1 and len(b) > 1 and a[0] == b[1] and a[1] == b[0]:
        rest = _agreement(a[2:], b[2:]) if len(a) > 2 and len(b) > 2 else float(len(a) == len(b))
        best = max(best, (rest, -1, "swapped"))
    return best[2] if best[0] > 0.5 else "left"


def _agreement(a: Sequence[Key], b: Sequence[Key]) -> float:
    """The part of the shorter that is the same from the beginning on."""
    shorter = min(len(a), len(b))
    if not shorter:
        return 0.0
    same = 0
    for left, right in zip(a, b, strict=False):
        if left != right:
            break
        same += 1
    return same / shorter
