"""Branches by rank that make up for each other: `if rank: barrier()` … `if not rank: barrier()`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichrank.source.code.events import (
    Event,
    Fork,
    exits,
)
from whichrank.source.code.paths.differences import level
from whichrank.source.code.paths.sequences import keys
from whichrank.source.code.values import (
    WORLD,
    differs,
)

if TYPE_CHECKING:
    from whichrank.source.code.paths.partings import Judge

MOST_FORKS = 64


def paired(judge: Judge, events: list[Event]) -> set[int]:
    """Branches by rank that make up for each other: `if rank: barrier()` … `if not rank: barrier()`."""
    forks = [e for e in level(events) if isinstance(e, Fork) and differs(e.test)]
    if not 2 <= len(forks) <= MOST_FORKS:
        return set()
    found: set[int] = set()
    for number, one in enumerate(forks):
        if id(one) in found or exits(one.then) or exits(one.other):
            continue
        for other in forks[number + 1 :]:
            if id(other) not in found and not exits(other.then) and not exits(other.other) and _even(judge, one, other):
                found |= {id(one), id(other)}
                _between(judge, events, one, other)
                break
    return found


def _between(judge: Judge, events: list[Event], one: Fork, other: Fork) -> None:
    """All ranks communicate between two branches that make up for each other: some before, some after the rest."""
    if one not in events or other not in events:
        return
    inside = events[events.index(one) + 1 : events.index(other)]
    always = [event for event in inside if not (isinstance(event, Fork) and differs(event.test))]
    groups_used = {step.op.group for arm in (one.then, one.other) for step in judge.sequences.of(arm)}
    steps = [step for step in judge.sequences.of(always) if step.op.group in groups_used]
    if steps and (reasons := judge.reasons(one.test)):
        judge.add("first", reasons, one.line, one.text, steps, [], doers=1)


def _even(judge: Judge, one: Fork, other: Fork) -> bool:
    """Whether every rank does the same in the two branches together."""
    if one.test.ranks is not None and other.test.ranks is not None:
        nodes = _local(judge, one) != _local(judge, other)
        both = [a + b for a, b in zip(_by_rank(judge, one, nodes), _by_rank(judge, other, nodes), strict=True)]
        return bool(both[0]) and all(seq == both[0] for seq in both)
    if other.text not in {f"not {one.text}", one.text.removeprefix("not ")} or other.text == one.text:
        return False
    arms = [keys(judge.sequences.of(arm)) for arm in (one.then, one.other, other.then, other.other)]
    return arms[0] + arms[3] == arms[1] + arms[2]


def _by_rank(judge: Judge, fork: Fork, nodes: bool) -> list[tuple[object, ...]]:
    """What each rank does in a branch; with local ranks as on two nodes of two where `nodes`."""
    arms = keys(judge.sequences.of(fork.then)), keys(judge.sequences.of(fork.other))
    numbers = [rank % 2 if nodes and _local(judge, fork) else rank for rank in range(WORLD)]
    return [arms[0] if fork.test.ranks and fork.test.ranks[number] else arms[1] for number in numbers]


def _local(judge: Judge, fork: Fork) -> bool:
    """Whether the place on the node decides, not the place among all ranks."""
    found = [origin for origin in judge.analysis.resolve(fork.test.taint) if origin.kind == "rank"]
    return bool(found) and all(origin.local for origin in found)
