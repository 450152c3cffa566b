"""Ranks of processes that go by another name: the place in the groups of a server, the number of an actor.

vLLM and SGLang call a process by its place in those groups that have more than one member: `TP9` alone is rank 9, since
then the tensor-parallel group is the world. `PP0_TP1` is one where all places of the grid speak. A process may also say
its rank outright. Ray's actors of one node are called `…_0:6`, the seventh of the first node. All of this names ranks
of the job only where no other evidence knows a larger world: a trainer may have servers beside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs
from msgspec.structs import replace

from whichrank.records.events.base import Event
from whichrank.records.events.launchers import ActorDied
from whichrank.records.events.startup import WorldPlace
from whichrank.records.of_kind import of_kind

_ALONE = re.compile(r"TP(\d{1,5})")
_GRID = re.compile(r"PP(\d{1,5})_TP(\d{1,5})")
_OF_FIRST_NODE = re.compile(r"[\w.-]{0,110}_0:(\d{1,3})")

Key = tuple[str, int | str]
"""A process: the text in which it speaks, and its pid, or else its place."""


def with_ranks_of_places(pile: Sequence[Any]) -> list[Any]:
    """The records, with the rank in the events of such processes that name none."""
    events = [r for r in pile if isinstance(r, Event) and (r.place or isinstance(r, WorldPlace | ActorDied))]
    if not events:
        return list(pile)
    ranks = _of_servers(pile, events) | _of_actors(events)
    return [_with_rank(r, ranks) if isinstance(r, Event) and r.rank is None else r for r in pile]


def _key(event: Event) -> Key:
    return event.ref.source, event.place if event.pid is None else event.pid


def _of_servers(pile: Sequence[Any], events: Sequence[Event]) -> dict[Key, int]:
    """None where two processes are the same rank, as in two servers, or where others know a larger world."""
    said = {_key(e): e for e in events if isinstance(e, WorldPlace)}
    found = _by_place({_key(e): e.place for e in events if e.place})
    found |= {key: event.number for key, event in said.items()}
    size = max([*(event.size for event in said.values()), *(rank + 1 for rank in found.values())], default=0)
    if len(set(found.values())) != len(found) or size < _stated(pile):
        return {}
    return found


def _by_place(places: Mapping[Key, str]) -> dict[Key, int]:
    alone = {key: int(match[1]) for key, place in places.items() if (match := _ALONE.fullmatch(place))}
    if len(alone) == len(places):
        return alone
    grid = {key: (int(match[1]), int(match[2])) for key, place in places.items() if (match := _GRID.fullmatch(place))}
    rows, columns = (1 + max((place[at] for place in grid.values()), default=0) for at in (0, 1))
    if len(grid) != len(places) or len(set(grid.values())) != rows * columns:
        return {}
    return {key: row * columns + column for key, (row, column) in grid.items()}


def _stated(pile: Sequence[Any]) -> int:
    """The size of the world of which ranks and communicators speak."""
    processes = (process for log in of_kind(pile, "nccl.NcclLog") for process in log.processes)
    sizes = [init.nranks for process in processes for init in process.inits]
    return max([*sizes, *(r.rank + 1 for r in pile if isinstance(r, Event) and r.rank is not None)], default=0)


def _of_actors(events: Sequence[Event]) -> dict[Key, int]:
    named = ((event, _OF_FIRST_NODE.fullmatch(event.name)) for event in events if isinstance(event, ActorDied))
    return {_key(event): int(match[1]) for event, match in named if match}


def _with_rank(event: Event, ranks: Mapping[Key, int]) -> Event:
    rank = ranks.get(_key(event))
    return event if rank is None else structs.replace(event, rank=rank, ref=replace(event.ref, rank=rank))
