"""The last collectives of every rank over time, with ranks that did the same drawn once."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from whichrank.model.verdict import RankInfo
from whichrank.model.views import Slice, Track
from whichrank.timeline.case import Case
from whichrank.timeline.collectives.lineup import Lineup
from whichrank.timeline.collectives.program import place_of

LAST = 16
"""Collectives per rank."""
SINGLE = 64
"""Up to so many ranks, each has a track of its own."""
APART = 32
"""So many of the ranks that the verdict names have a track of their own."""
_PATH = "/"


def tracks(case: Case, infos: Collection[RankInfo], named: Collection[int]) -> tuple[Track, ...]:
    """One track per kind of behaviour, in the order of its first rank; ranks in `named` stay by themselves."""
    lineup = case.lineup
    if lineup is None or not len(lineup) or int(lineup.created.max()) <= 0:
        return ()
    alone = set(sorted(named)[:APART])
    together: dict[object, list[int]] = {}
    for info in infos:
        single = len(infos) <= SINGLE or info.rank in alone
        key = info.rank if single else (info.state, *_behaviour(lineup, info.rank))
        together.setdefault(key, []).append(info.rank)
    return tuple(Track(tuple(ranks), _slices(case, lineup, ranks[0])) for ranks in together.values())


def _behaviour(lineup: Lineup, rank: int) -> tuple[object, ...]:
    """What a rank did last, without its times: groups of the same purpose count as one."""
    rows = lineup.rows(rank)[-LAST:]
    if not rows:
        return ()
    part = slice(rows.start, rows.stop)
    purposes = tuple(_purpose(lineup, int(index)) for index in lineup.group[part])
    columns = (lineup.seq, lineup.call_signature[lineup.call[part]], lineup.done)
    seq, call, done = columns[0][part], columns[1], columns[2][part]
    return (purposes, seq.tobytes(), call.tobytes(), done.tobytes())


def _purpose(lineup: Lineup, index: int) -> str:
    if index < 0:
        return ""
    group = lineup.groups[index]
    return group.desc or group.name


def _slices(case: Case, lineup: Lineup, rank: int) -> tuple[Slice, ...]:
    clock = case.clocks.get(rank)
    ahead = clock.ahead_ns if clock is not None else 0
    rows = lineup.rows(rank)
    found: list[Slice] = []
    for row in rows[-LAST:]:
        call = lineup.call_of(row)
        group, seq = _purpose(lineup, int(lineup.group[row])), int(lineup.seq[row])
        start, end = int(lineup.created[row]) - ahead, int(lineup.completed[row])
        if not lineup.done[row]:
            until = None
        elif end > 0:
            until = max(start, end - ahead)
        else:  # Gloo notes no end: it was over before the next one began
            until = int(lineup.created[row + 1]) - ahead if row + 1 < rows.stop else start
        if found and (found[-1].group, found[-1].seq, found[-1].op) == (group, seq, call.op):
            found[-1] = replace(found[-1], end_ns=until)  # parts of one coalesced call
            continue
        place = place_of(call)
        where = f"{place.file.rsplit(_PATH, 1)[-1]}:{place.line} in {place.function}" if place else ""
        found.append(Slice(group, seq, call.op, start, until, where))
    return tuple(found)
