"""Sends and receives that block each other: a cycle, or a partner that never comes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from whichrank.rehearse.positions import Made, Position, Ways


@dataclass(frozen=True, slots=True)
class Blocked:
    ranks: tuple[int, ...]
    waits: dict[int, int]
    """Rank -> the rank whose send or receive it waits for."""
    guilty: tuple[int, ...]
    cycle: bool


def find(positions: dict[int, Position], groups: dict[str, Any]) -> Blocked | None:
    """Judge the ranks that wait in a send or a receive."""
    waits = {
        rank: peer
        for rank, position in positions.items()
        if position.call is not None and (peer := _peer(position.call, groups)) is not None
    }
    if not waits:
        return None
    ways, ring = Ways(positions), _cycle(waits)
    if ring:
        odd = tuple(rank for rank in ring if ways.strange(rank))
        if odd and len(odd) < len(ring):
            return Blocked(tuple(ring), waits, odd, cycle=False)
        faithless = tuple(
            peer for rank in ring if not _comes(positions[peer := waits[rank]], positions[rank], groups)
        )  # fmt: skip
        if faithless and len(set(faithless)) < len(ring):
            return Blocked(tuple(ring), waits, tuple(sorted(set(faithless))), cycle=False)
        return Blocked(tuple(ring), waits, tuple(sorted(ring)), cycle=True)
    guilty = tuple(rank for rank in positions if rank in waits.values() and ways.strange(rank))
    if guilty:
        return Blocked(tuple(sorted(r for r in waits if waits[r] in guilty)), waits, guilty, cycle=False)
    return _orphan(positions, waits)


def _orphan(positions: dict[int, Position], waits: dict[int, int]) -> Blocked | None:
    """The ends of the chains: partners that are in something else, or have ended."""
    last = {peer for peer in waits.values() if peer not in waits}
    if not last:
        return None
    waiting = tuple(sorted(rank for rank, peer in waits.items() if peer in last))
    return Blocked(waiting, waits, tuple(sorted(last & set(positions))), cycle=False)


def _peer(call: Made, groups: dict[str, Any]) -> int | None:
    if call.op not in ("send", "recv") or call.signature["peer"] < 0:
        return None
    return int(groups[call.group]["members"][call.signature["peer"]])


def _cycle(waits: dict[int, int]) -> list[int]:
    for start in waits:
        path: list[int] = []
        at = start
        while at in waits and at not in path:
            path.append(at)
            at = waits[at]
        if at in path:
            return path[path.index(at) :]
    return []


def _comes(peer: Position, waiting: Position, groups: dict[str, Any]) -> bool:
    """Whether the partner would make the call that is waited for, before it comes round to where it is now."""
    if waiting.call is None:
        return False
    wanted = "recv" if waiting.call.op == "send" else "send"
    for call in peer.after:
        if peer.call is not None and call.key == peer.call.key:
            return False
        if call.op == wanted and _peer(call, groups) == waiting.rank:
            return True
    return False
