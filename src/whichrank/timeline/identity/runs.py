"""Which dumps belong to the run in question, and which rank each of them is.

A folder often holds more than one run: an earlier attempt, the same dump as pickle and as JSON,
a copy. Runs are told apart by time: the recorders of one run overlap, those of another don't.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct, field

from whichrank.records.dump import COMPLETED, Dump, LocalGroup

# Clocks of hosts may differ by this much before two dumps of one run look like two runs.
CLOCK_TOLERANCE_NS = 120 * 1_000_000_000


class Run(Struct):
    """The dumps of one run with a rank each."""

    dumps: list[Dump] = field(default_factory=list)
    aside: list[tuple[Dump, str]] = field(default_factory=list)
    """Dumps that were not used, with the reason."""
    unplaced: list[Dump] = field(default_factory=list)
    """Dumps whose rank nothing tells."""


def _span(dump: Dump) -> tuple[int, int]:
    if not len(dump):
        when = dump.newest_ns or dump.mtime_ns or 0
        return when, when
    first = int(dump.created_ns.min())
    return first, max(int(dump.created_ns.max()), dump.newest_ns)


def _clusters(dumps: Sequence[Dump]) -> list[list[Dump]]:
    """Groups of dumps whose recorded times overlap, oldest first."""
    clusters: list[list[Dump]] = []
    end = 0
    spans = {id(dump): _span(dump) for dump in dumps}
    for dump in sorted(dumps, key=lambda dump: spans[id(dump)]):
        first, last = spans[id(dump)]
        if clusters and first <= end + CLOCK_TOLERANCE_NS:
            clusters[-1].append(dump)
        else:
            clusters.append([dump])
        end = max(end, last)
    return clusters


def _backends(dump: Dump) -> frozenset[str]:
    return frozenset(call.backend for call in dump.calls)


def _same_recorder(one: Dump, other: Dump) -> bool:
    """Two files of one buffer: pickle and JSON of it, or a later dump of the same process."""
    return not _backends(one) or not _backends(other) or bool(_backends(one) & _backends(other))


def _attempts(cluster: Sequence[Dump]) -> list[list[Dump]]:
    """Split a cluster where one rank has two different buffers of the same backend: a quick restart."""
    by_rank: dict[int | None, list[Dump]] = {}
    for dump in cluster:
        by_rank.setdefault(dump.rank, []).append(dump)
    starts: list[int] = []
    for rank, dumps in by_rank.items():
        if rank is None or len(dumps) < 2:
            continue
        windows = sorted({_span(dump)[0] for dump in dumps if len(dump) and not dump.capacity_wrapped})
        ends = sorted(_span(dump)[1] for dump in dumps if len(dump))
        starts += [start for start in windows[1:] if ends and ends[0] < start]
    if not starts:
        return [list(cluster)]
    cut = min(starts)
    early = [dump for dump in cluster if len(dump) and _span(dump)[1] < cut]
    late = [dump for dump in cluster if dump not in early]
    return [early, *_attempts(late)] if early and late else [list(cluster)]


def _better(one: Dump, other: Dump) -> Dump:
    """Of two dumps of one buffer the one that says more: newer, then with frames, then longer."""
    return max(one, other, key=lambda d: (int(d.record_id[-1]) if len(d) else -1, d.has_frames, len(d)))


def _without_copies(dumps: Iterable[Dump]) -> tuple[list[Dump], list[tuple[Dump, str]]]:
    kept: list[Dump] = []
    of_rank: dict[int, list[int]] = {}
    aside: list[tuple[Dump, str]] = []
    for dump in dumps:
        slots = of_rank.setdefault(dump.rank, []) if dump.rank is not None else []
        slot = next((number for number in slots if _same_recorder(dump, kept[number])), None)
        if slot is None:
            slots.append(len(kept))
            kept.append(dump)
            continue
        best = _better(kept[slot], dump)
        worse = dump if best is kept[slot] else kept[slot]
        aside.append((worse, f"another dump of rank {dump.rank} says more: {best.source}"))
        kept[slot] = best
    return kept, aside


def _place_unnamed(dumps: list[Dump]) -> None:
    """Give a rank to dumps whose names have none: the one member of all their groups still free."""
    taken = {dump.rank for dump in dumps if dump.rank is not None}
    progress = True
    while progress:
        progress = False
        for dump in dumps:
            if dump.rank is not None:
                continue
            sets = [set(group.members) for group in dump.groups if group.members]
            free = set.intersection(*sets) - taken if sets else set()
            if len(free) == 1:
                dump.rank = free.pop()
                taken.add(dump.rank)
                progress = True


LARGEST_WORLD = 1 << 17
"""Nobody runs more ranks; a larger number in a name is something else, unless the evidence states such a world."""

EMPTIED = "holds no operations, though other ranks completed some that need it: it says nothing about this rank"


def _drop_impossible_ranks(dumps: list[Dump]) -> None:
    """A number in a file name that is in none of the dump's groups, or beyond every group's, is not a rank."""
    stated = max((rank for dump in dumps for group in dump.groups for rank in (group.members or ())[-1:]), default=0)
    sets: dict[int, set[int]] = {}  # dumps of one job share their lists of members
    for dump in dumps:
        lists = [group.members for group in dump.groups if group.members]
        members = [sets.get(id(one)) or sets.setdefault(id(one), set(one)) for one in lists]
        inside = any(dump.rank in one for one in members)
        if not members:
            inside = (dump.rank or 0) <= max(stated, LARGEST_WORLD)
        if dump.rank is not None and not inside:
            dump.rank = None


def _contradicted(empty: Dump, others: Sequence[Dump]) -> bool:
    """Whether others completed collectives that need this rank, so that its empty recorder is not its whole story."""
    for dump in others:
        done = {dump.groups[int(number)] for number in np.unique(dump.group[dump.state == COMPLETED])}
        # Gloo's entries stay scheduled; its status tells.
        done |= {
            group for group in dump.groups if group.pg_id in dump.status and dump.status[group.pg_id].completed > 0
        }
        if any(_needs(group, empty.rank) for group in done):
            return True
    return False


def _needs(group: LocalGroup, rank: int | None) -> bool:
    return rank in group.members if group.members else group.desc == "default_pg" or group.name == "0"


def choose_run(dumps: Sequence[Dump]) -> Run:
    """The newest run in the pile; everything older, doubled or nameless is set aside and said."""
    run = Run()
    if not dumps:
        return run
    # A recorder that holds nothing says nothing about when: it goes with the run that the others tell of.
    pool = [dump for dump in dumps if len(dump)] or list(dumps)
    empty = [dump for dump in dumps if not len(dump) and dump not in pool]
    _drop_impossible_ranks([*pool, *empty])
    run.aside = [(dump, EMPTIED) for dump in empty if _contradicted(dump, pool)]
    empty = [dump for dump in empty if not any(dump is other for other, _ in run.aside)]
    parts = [part for cluster in _clusters(pool) for part in _attempts(cluster)]
    sizes = Counter({index: len({dump.rank for dump in part}) for index, part in enumerate(parts)})
    newest = max(range(len(parts)), key=lambda index: (sizes[index] * 4 >= max(sizes.values()), index))
    for index, part in enumerate(parts):
        if index != newest:
            when = "an earlier" if index < newest else "another"
            run.aside += [(dump, f"belongs to {when} run or attempt") for dump in part]
    kept, copies = _without_copies([*parts[newest], *empty])
    run.aside += copies
    _place_unnamed(kept)
    run.unplaced = [dump for dump in kept if dump.rank is None]
    if run.unplaced and len(run.unplaced) == len(kept) == 1:
        kept[0].rank = 0
        run.unplaced = []
    run.dumps = sorted((dump for dump in kept if dump.rank is not None), key=lambda d: d.rank or 0)
    return run
