"""Dumps of very many ranks, without the entries that no verdict needs.

Of each rank its newest entries are kept, all that are unfinished, and the newest of every group. What is left out was
finished, and is compared before it is forgotten: a collective is named by its signature, and ranks that run the same
program have the same names in the same order, so that all of them share one list (a `Digest`). Where two members of
a group don't agree, their dumps are read again and the entries around that place are kept as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import replace

from whichrank.records.dump import Call, Dump
from whichrank.timeline.collectives.completed import marks
from whichrank.timeline.collectives.lineup import DUMP_COLUMNS, I32, Bools, in_order, scattered
from whichrank.timeline.collectives.program import TAIL
from whichrank.timeline.collectives.signature import signature
from whichrank.timeline.identity.groups import resolve_groups, world_size

# Entries of all ranks together that fit into memory, with what lining them up takes (some 100 bytes each).
ROOM = 6_000_000
# As many at the most are added when dumps are read again.
ADDED = 3_000_000
# Of each rank at least what is read of its past, and of each group enough to tell how far it has come.
LEAST, OF_GROUP, UNFINISHED = TAIL + 16, 16, 256
# Entries kept around a place at which members disagree, and of how many such places in one group.
BEFORE, BEHIND, PLACES = 300, 100, 2
# What groups of the same kind did at that place decides where a group has no majority: so many of their members.
SIBLINGS = 256

# Columns that ranks of one program share, and of how many programs what was cut is remembered.
_SHARED = tuple(name for name in DUMP_COLUMNS if name not in ("created_ns", "completed_ns"))
_MOST_CUTS = 64

U32 = npt.NDArray[np.uint32]
_Array = TypeVar("_Array", I32, U32)


class Digest(Struct, frozen=True):
    """The collectives of one group that were left out, in order of their numbers: ranks share these arrays."""

    seq: I32
    names: U32
    """Of signatures, in 32 bits."""
    unfinished: int | None = None
    """The first one among the older entries that was not finished, and was kept therefore."""

    def departs_from(self, other: Digest) -> int | None:
        """The first number at which two lists differ, where both have entries; None if they agree."""
        if (self.seq is other.seq and self.names is other.names) or not len(self.seq) or not len(other.seq):
            return None
        low, high = max(self.seq[0], other.seq[0]), min(self.seq[-1], other.seq[-1])
        mine, theirs = self._between(low, high), other._between(low, high)
        shorter = min(len(mine.seq), len(theirs.seq))
        differs = (mine.seq[:shorter] != theirs.seq[:shorter]) | (mine.names[:shorter] != theirs.names[:shorter])
        if differs.any():
            at = int(np.argmax(differs))
            return int(min(mine.seq[at], theirs.seq[at]))
        longer = mine if len(mine.seq) > shorter else theirs
        return int(longer.seq[shorter]) if len(longer.seq) > shorter else None

    def _between(self, low: int, high: int) -> Digest:
        part = slice(np.searchsorted(self.seq, low, "left"), np.searchsorted(self.seq, high, "right"))
        return Digest(self.seq[part], self.names[part])


class Place(Struct, frozen=True):
    """A collective that a dump has to be read again for."""

    group: int
    """Number of the group within the dump."""
    seq: int


class _Cut(Struct, frozen=True):
    """What is left of dumps that have the same columns, apart from their times."""

    source: tuple[Any, ...]
    """The columns and calls that it was made of: as long as they are here, nothing else has their ids."""
    kept: Bools
    digests: dict[int, Digest]
    without_messages: bool
    """Sends or receives are among what was left out."""
    columns: dict[str, npt.NDArray[Any]] = field(default_factory=dict)


class Thinner(Struct):
    """Takes dumps one by one; what they share is kept once."""

    keep: int
    """Newest entries of each dump."""
    digests: dict[int, dict[int, Digest]] = field(default_factory=dict)
    """By the id of the dump, then by the number of the group within it."""
    _names: dict[int, tuple[Call, int]] = field(default_factory=dict)
    _arrays: dict[bytes, npt.NDArray[Any]] = field(default_factory=dict)
    _cuts: dict[tuple[int, ...], _Cut] = field(default_factory=dict)

    @classmethod
    def for_dumps(cls, count: int) -> Thinner | None:
        """One for so many dumps; None where there are so few that all of their entries fit (2,000 is the default)."""
        return cls(max(LEAST, ROOM // count)) if count * 2000 > ROOM else None

    def thin(self, dump: Dump, places: Sequence[Place] = ()) -> None:
        """Forget the entries of a dump that no verdict needs."""
        if len(dump) <= self.keep:
            return
        cut = self._cut(dump, places) if places else self._shared_cut(dump)
        self.digests[id(dump)] = cut.digests
        # The n-th send belongs to the n-th recv: where some are gone it can't be counted from the beginning.
        dump.capacity_wrapped = dump.capacity_wrapped or cut.without_messages
        dump.left_out += len(dump) - int(np.count_nonzero(cut.kept))
        for name in DUMP_COLUMNS:
            setattr(dump, name, cut.columns[name] if name in cut.columns else getattr(dump, name)[cut.kept])

    def _shared_cut(self, dump: Dump) -> _Cut:
        """Ranks that run one program have the very same columns, so that the work is done once."""
        shared = {name: getattr(dump, name) for name in _SHARED}
        source = (*shared.values(), *dump.calls)
        key = (len(dump.groups), *map(id, source))
        cut = self._cuts.get(key)
        if cut is None:
            cut = self._cut(dump, ())
            cut.columns.update({name: column[cut.kept] for name, column in shared.items()})
            if len(self._cuts) >= _MOST_CUTS:
                self._cuts.clear()
            self._cuts[key] = replace(cut, source=source)
        return cut

    def _cut(self, dump: Dump, places: Sequence[Place]) -> _Cut:
        done, _, issued = marks(dump)
        done = done | issued  # a recorder that sees no ends: nothing is known against them
        kept = _newest(dump, done, self.keep)
        for place in places:
            at = np.flatnonzero((dump.group == place.group) & (dump.seq == place.seq))
            nearest = int(at[0]) if len(at) else _nearest(dump, place)
            kept[max(0, nearest - BEFORE) : nearest + BEHIND] = True
        p2p = np.array([call.p2p for call in dump.calls], np.bool_)[dump.call]
        return _Cut((), kept, self._digested(dump, ~kept, done), bool((p2p & ~kept).any()))

    def _digested(self, dump: Dump, gone: Bools, done: Bools) -> dict[int, Digest]:
        collective = ~np.array([call.p2p for call in dump.calls], np.bool_)[dump.call]
        older = collective & (np.arange(len(dump)) < len(dump) - self.keep)
        names = np.array([self._name(call) for call in dump.calls], np.uint32)
        found = {}
        for group in range(len(dump.groups)):
            mine = older & (dump.group == group)
            rows = np.flatnonzero(mine & gone)
            if len(rows):
                rows = rows[in_order(dump.seq[rows])]
                pending = dump.seq[mine & ~done]
                seq, named = self._once(dump.seq[rows]), self._once(names[dump.call[rows]])
                found[group] = Digest(seq, named, int(pending.min()) if len(pending) else None)
        return found

    def _name(self, call: Call) -> int:
        known = self._names.get(id(call))
        if known is None:
            spread = scattered(np.array([hash(signature(call))], np.int64))
            known = self._names[id(call)] = call, int(spread[0]) & 0xFFFFFFFF
        return known[1]

    def _once(self, array: _Array) -> _Array:
        raw = array.dtype.str.encode().ljust(4) + array.tobytes()
        return cast("_Array", self._arrays.setdefault(raw, np.frombuffer(raw, array.dtype, offset=4)))


def _newest(dump: Dump, done: Bools, keep: int) -> Bools:
    """Which entries are kept, whatever other ranks have."""
    kept = np.zeros(len(dump), np.bool_)
    kept[0] = True  # the beginning of the recording
    kept[-keep:] = True
    kept[np.flatnonzero(~done)[:UNFINISHED]] = True
    for group in range(len(dump.groups)):
        rows = np.flatnonzero(dump.group == group)
        kept[rows[-OF_GROUP:]] = True
        kept[rows[done[rows]][-OF_GROUP:]] = True
    return kept


def _nearest(dump: Dump, place: Place) -> int:
    """Where a collective would be that a dump does not have."""
    rows = np.flatnonzero(dump.group == place.group)
    behind = rows[dump.seq[rows] > place.seq]
    return int(behind[0]) if len(behind) else len(dump) - 1


def disputed(dumps: Sequence[Dump], thinner: Thinner) -> dict[int, list[Place]]:
    """Dumps (by index) that have to be read again, and for which of their collectives.

    In a large group enough members are chosen: those that differ from most, and as many of the others as fit.
    """
    placed = [(number, dump) for number, dump in enumerate(dumps) if dump.rank is not None]
    groups, mapping = resolve_groups([dump for _, dump in placed], world_size([dump for _, dump in placed]))
    members: dict[int, list[tuple[int, int, Digest]]] = {}
    for (number, dump), row in zip(placed, mapping, strict=True):
        for local, digest in thinner.digests.get(id(dump), {}).items():
            members.setdefault(row[local], []).append((number, local, digest))
    wanted: dict[int, list[Place]] = {}
    room = ADDED
    for group in sorted(members, key=lambda group: len(groups[group].members) if group >= 0 else 0):
        places, odd = _departures(members[group]) if group >= 0 else ([], set())
        if not places:
            continue
        first = sorted(members[group], key=lambda member: (id(member[2]) not in odd, member[0]))
        chosen = first[: max(2, room // (BEFORE + BEHIND))]
        kind = groups[group].kind
        alike = [
            m for other in members if other not in (group, -1) and groups[other].kind == kind for m in members[other]
        ]
        for number, local, _ in chosen + alike[:: len(alike) // SIBLINGS + 1]:
            wanted.setdefault(number, []).extend(Place(local, seq) for seq in places)
            room -= (BEFORE + BEHIND) * len(places)
    return wanted


def _departures(members: Sequence[tuple[int, int, Digest]]) -> tuple[list[int], set[int]]:
    """The first numbers at which members differ from most others or have not finished, and the ids of their lists."""
    lists = {(id(digest.seq), id(digest.names)): digest for _, _, digest in members}
    often = Counter((id(digest.seq), id(digest.names)) for _, _, digest in members)
    usual = lists[often.most_common(1)[0][0]]
    departures = {key: at for key, digest in lists.items() if (at := digest.departs_from(usual)) is not None}
    pending = {digest.unfinished for _, _, digest in members if digest.unfinished is not None}
    odd = {
        id(digest)
        for _, _, digest in members
        if digest.unfinished is not None or (id(digest.seq), id(digest.names)) in departures
    }
    return sorted({*sorted(set(departures.values()))[:PLACES], *sorted(pending)[:PLACES]}), odd
