"""Process groups across ranks.

Names repeat across disjoint groups and ids are local to a process, so a group is its name and its
members together. Gloo and old dumps don't say who the members are: they are then the ranks that were
seen in the group, completed by what the sizes of its collectives say.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from whichrank.records.dump import Call, Dump, GroupMembers, LocalGroup
from whichrank.timeline.collectives.signature import bare_name, numels

# What a file claims of the number of ranks is believed up to here.
MOST_RANKS = 1 << 20
_NUMBER = re.compile(r"\d+")


class Group(Struct, frozen=True):
    """A process group of the job."""

    id: str
    name: str
    desc: str
    members: tuple[int, ...]
    certain: bool
    """False when the members are only those that were seen."""

    @property
    def kind(self) -> tuple[str, int]:
        """Groups of one kind do the same work for different ranks: all tp groups, `stage0` and `stage1`."""
        return _unnumbered(self.desc), len(self.members)

    @property
    def title(self) -> str:
        """How a person would call it."""
        if self.desc and self.desc != "undefined":
            return self.desc if self.desc == "default_pg" or not self.name else f"{self.desc} group {self.name}"
        return f"group {self.name}" if self.name else "the default group"


@lru_cache(maxsize=4096)
def _unnumbered(desc: str) -> str:
    return _NUMBER.sub("#", desc)


def with_members(dumps: Sequence[Dump], told: Sequence[GroupMembers]) -> Sequence[Dump]:
    """The dumps with the members that their processes name, where the recorder does not."""
    if not told:
        return dumps
    shared: dict[tuple[int, ...], tuple[int, ...]] = {}
    lists = {each.rank: {n: shared.setdefault(m, m) for n, m in each.members.items()} for each in told}
    return [replace(d, groups=_named(d.groups, lists[d.rank])) if d.rank in lists else d for d in dumps]


def _named(groups: list[LocalGroup], members: dict[str, tuple[int, ...]]) -> list[LocalGroup]:
    return [replace(g, members=members[g.name]) if g.members is None and g.name in members else g for g in groups]


class Sorted:
    """Lists of members in order. Dumps share the lists, so that each is sorted and hashed once, not once per rank."""

    def __init__(self) -> None:
        self._by_id: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        self._same: dict[tuple[int, ...], tuple[int, ...]] = {}

    def of(self, members: tuple[int, ...]) -> tuple[int, ...]:
        """The same members in order; equal ones are the same object."""
        found = self._by_id.get(id(members))
        if found is None:
            ordered = tuple(sorted(members))
            # The list itself is kept beside it: its number must not be given to another.
            found = self._by_id[id(members)] = members, self._same.setdefault(ordered, ordered)
        return found[1]


def world_size(dumps: Sequence[Dump]) -> int:
    """The number of ranks the evidence speaks of."""
    named = [dump.rank for dump in dumps if dump.rank is not None]
    lists = {id(group.members): group.members for dump in dumps for group in dump.groups if group.members}
    listed = [max(members) for members in lists.values()]
    return max(max(named + listed, default=-1) + 1, _gathered_world(dumps))


def _gathered_world(dumps: Sequence[Dump]) -> int:
    """The size of the default group where it lists no members, by what its collectives gather; 0 if nothing tells."""
    for dump in dumps:
        for index, local in enumerate(dump.groups):
            if local.members is None and _is_default(local.name, local.desc, local.pg_id):
                size = _size_by_gather(dump.calls[i] for i in set(dump.call[dump.group == index].tolist()))
                if size is not None and size <= MOST_RANKS:
                    return size
    return 0


def _is_default(name: str, desc: str, pg_id: int) -> bool:
    return desc == "default_pg" or (name in ("", "0") and pg_id == 0)


def _size_by_gather(calls: Iterable[Call]) -> int | None:
    """The group's size, from collectives whose output is that many times their input."""
    ratios: Counter[int] = Counter()
    for call in calls:
        name = bare_name(call.op)
        sent, received = sum(numels(call.input_sizes)), sum(numels(call.output_sizes))
        if name.startswith(("all_gather", "allgather")) and sent > 0 and received % sent == 0:
            ratios[received // sent] += 1
        elif name.startswith("reduce_scatter") and received > 0 and sent % received == 0:
            ratios[sent // received] += 1
    return ratios.most_common(1)[0][0] if ratios else None


def _seen(dumps: Sequence[Dump]) -> dict[tuple[str, str], tuple[set[int], list[Call]]]:
    """Groups without listed members: the ranks and calls that were seen under each name."""
    seen: dict[tuple[str, str], tuple[set[int], list[Call]]] = {}
    for dump in dumps:
        unlisted = [number for number, local in enumerate(dump.groups) if local.members is None]
        if not unlisted or dump.rank is None:
            continue
        for index in sorted(set(dump.group.tolist()).intersection(unlisted)):
            local = dump.groups[index]
            key = (_local_name(dump, index), local.desc)
            ranks, calls = seen.setdefault(key, (set(), []))
            ranks.add(dump.rank)
            if len(calls) < 64:
                calls += [dump.calls[i] for i in sorted(set(dump.call[dump.group == index].tolist()))[:16]]
    return seen


def _local_name(dump: Dump, index: int) -> str:
    """The name; for old dumps without names only the default group can be matched across ranks."""
    local = dump.groups[index]
    if local.name or local.pg_id == 0:
        return local.name
    return f"pg {local.pg_id} of rank {dump.rank}"


def _complete(
    seen: dict[tuple[str, str], tuple[set[int], list[Call]]], world: int, dumped: set[int]
) -> dict[tuple[str, str], tuple[tuple[int, ...], bool]]:
    """Members of groups that list none, with whether that is certain."""
    result: dict[tuple[str, str], tuple[tuple[int, ...], bool]] = {}
    sizes = {key: _size_by_gather(calls) for key, (_, calls) in seen.items()}
    placed: dict[str, set[int]] = defaultdict(set)
    for (_, desc), (ranks, _) in seen.items():
        placed[desc] |= ranks
    for (name, desc), (ranks, _) in seen.items():
        if _is_default(name, desc, 0):
            result[name, desc] = tuple(range(world)), sizes[name, desc] == world
            continue
        size = sizes[name, desc]
        free = set(range(world)) - dumped - placed[desc]
        wanting = [key for key, wanted in sizes.items() if key[1] == desc and wanted != len(seen[key][0])]
        if size is not None and size - len(ranks) == len(free) > 0 and wanting == [(name, desc)]:
            result[name, desc] = tuple(sorted(ranks | free)), True
        else:
            result[name, desc] = tuple(sorted(ranks)), size is None or size == len(ranks)
    return result


def resolve_groups(dumps: Sequence[Dump], world: int) -> tuple[list[Group], list[list[int]]]:
    """All groups, and for every dump the index of each of its local groups among them."""
    dumped = {dump.rank for dump in dumps if dump.rank is not None}
    inferred = _complete(_seen(dumps), world, dumped)
    index: dict[tuple[str, int], int] = {}
    ordered = Sorted()
    groups: list[Group] = []
    mapping: list[list[int]] = []
    names: Counter[str] = Counter()
    for dump in dumps:
        row: list[int] = []
        for i, local in enumerate(dump.groups):
            if local.members is not None:
                name, members, certain = local.name, ordered.of(local.members), True
            else:
                name = _local_name(dump, i)
                if (name, local.desc) not in inferred:
                    row.append(-1)
                    continue
                members, certain = inferred[name, local.desc]
                members = ordered.of(members)
            key = (name, id(members))
            if key not in index:
                index[key] = len(groups)
                names[name] += 1
                suffix = f"#{names[name]}" if names[name] > 1 else ""
                groups.append(Group(f"{name or 'default'}{suffix}", name, local.desc, members, certain))
            row.append(index[key])
        mapping.append(row)
    return groups, mapping
