"""Who waits for whom, over all groups; and where the waiting ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from whichrank.timeline.collectives.meetings import Meeting, Meetings


class WaitGraph(Struct):
    """Ranks wait in meetings, meetings wait for ranks: so its size is that of the evidence, not of all pairs."""

    meetings: list[Meeting] = field(default_factory=list)
    """Those that are the earliest of their group or channel for some rank."""
    awaited: list[set[int]] = field(default_factory=list)
    """For each of them the ranks that have not come, came with something else, or can't begin it yet."""
    waits_in: dict[int, list[int]] = field(default_factory=dict)
    """Rank -> numbers of the meetings in which it waits for others."""
    heads: dict[int, list[Meeting]] = field(default_factory=dict)
    """Rank -> the meetings it has joined, one per group or channel: the earliest."""
    complete: list[Meeting] = field(default_factory=list)
    """Meetings to which everybody came with the same thing."""
    stalled: list[Meeting] = field(default_factory=list)
    """Those of them in which nobody is held up elsewhere."""
    suspected: list[Meeting] = field(default_factory=list)
    """Meetings where only ranks without a dump are missing."""

    @property
    def waiting(self) -> tuple[int, ...]:
        """Ranks that wait for somebody."""
        return tuple(sorted(rank for rank in self.waits_in if self._waits(rank)))

    def _waits(self, rank: int) -> bool:
        sets = (self.awaited[number] for number in self.waits_in[rank])
        return any(len(awaited) > (rank in awaited) for awaited in sets)

    def awaited_by(self, rank: int) -> list[tuple[Meeting, set[int]]]:
        """The meetings that a rank sits in, with those it waits for there."""
        return [(self.meetings[n], self.awaited[n] - {rank}) for n in self.waits_in.get(rank, ())]


def in_oldest(graph: WaitGraph, meetings: Meetings) -> WaitGraph:
    """The same graph with each rank in its oldest unfinished operation alone: what it queued behind comes later."""
    oldest = _oldest(meetings)
    waits = {
        rank: [n for n in numbers if graph.meetings[n].joined.get(rank) == oldest.get(rank)]
        for rank, numbers in graph.waits_in.items()
    }
    return WaitGraph(graph.meetings, graph.awaited, {rank: numbers for rank, numbers in waits.items() if numbers})


def _oldest(meetings: Meetings) -> dict[int, int]:
    """Rank -> row of its oldest unfinished operation."""
    oldest: dict[int, int] = {}
    for meeting in meetings.pending:
        for rank in meeting.pending:
            row = meeting.joined[rank]
            oldest[rank] = min(row, oldest.get(rank, row))
    return oldest


def build_graph(meetings: Meetings) -> WaitGraph:
    """The wait-for graph over all ranks of all pending meetings.

    Hosts queue operations on the GPU and run ahead. So a meeting to which everybody came may still wait for a
    member: one whose GPU is held up in an older operation, which is where the explanation lies.
    """
    graph = WaitGraph()
    oldest = _oldest(meetings)
    seen: set[tuple[int, int, bool, tuple[int | None, frozenset[int] | None]]] = set()
    for meeting in meetings.pending:
        channel = (
            meeting.sender,
            frozenset((*meeting.joined, *meeting.absent, *meeting.unseen)) if meeting.p2p else None,
        )
        heads = [r for r in meeting.pending if (r, meeting.group, meeting.p2p, channel) not in seen]
        if not heads:
            continue
        held = {rank for rank in meeting.pending if oldest[rank] < meeting.joined[rank]}
        missing = _missing(graph, meeting, held)
        number = len(graph.meetings)
        graph.meetings.append(meeting)
        graph.awaited.append(missing | set(meeting.joined) if meeting.disagrees else missing)
        for rank in heads:
            seen.add((rank, meeting.group, meeting.p2p, channel))
            graph.heads.setdefault(rank, []).append(meeting)
            # A rank that is held up elsewhere does not wait here: its older operation says what it waits for.
            if rank not in missing:
                graph.waits_in.setdefault(rank, []).append(number)
    return graph


def _missing(graph: WaitGraph, meeting: Meeting, held: set[int]) -> set[int]:
    """Whom a meeting waits for: those who have not come, else those who are held up, else those of unknown fate."""
    if meeting.absent or meeting.disagrees:
        return set(meeting.absent)
    if meeting.open_ended and not meeting.unseen:
        return held
    if not meeting.unseen:
        graph.complete.append(meeting)
        if not held:
            graph.stalled.append(meeting)
    elif not held:
        graph.suspected.append(meeting)
    return held or set(meeting.unseen)


def components(edges: Mapping[int, Iterable[int]]) -> list[tuple[int, ...]]:
    """Strongly connected components, those that others wait for first (Tarjan, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    result: list[tuple[int, ...]] = []
    for root in edges:
        if root in index:
            continue
        work: list[tuple[int, list[int]]] = [(root, list(edges.get(root, ())))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, todo = work[-1]
            if todo:
                nxt = todo.pop()
                if nxt not in index:
                    index[nxt] = low[nxt] = len(index)
                    stack.append(nxt)
                    on_stack.add(nxt)
                    work.append((nxt, list(edges.get(nxt, ()))))
                elif nxt in on_stack:
                    low[node] = min(low[node], index[nxt])
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[node])
            if low[node] == index[node]:
                part: list[int] = []
                while True:
                    member = stack.pop()
                    on_stack.discard(member)
                    part.append(member)
                    if member == node:
                        break
                result.append(tuple(sorted(part)))
    return result


def _edges(graph: WaitGraph) -> dict[int, list[int]]:
    """Ranks are their own numbers, the n-th meeting is -1 - n."""
    edges = {rank: [-1 - n for n in numbers] for rank, numbers in graph.waits_in.items()}
    for number, awaited in enumerate(graph.awaited):
        edges[-1 - number] = list(awaited)
        for rank in awaited:
            edges.setdefault(rank, [])
    return edges


def sinks(graph: WaitGraph) -> list[tuple[int, ...]]:
    """Sets of ranks that wait for nobody outside themselves: there the waiting ends."""
    edges = _edges(graph)
    found = []
    for part in components(edges):
        inside = set(part)
        ranks = tuple(node for node in part if node >= 0)
        if ranks and not any(other not in inside for node in part for other in edges[node]):
            found.append(ranks)
    return found


def reached_by(graph: WaitGraph, ranks: Iterable[int]) -> int:
    """How many ranks wait, directly or not, for these."""
    back: dict[int, list[int]] = {}
    for node, targets in _edges(graph).items():
        for target in targets:
            back.setdefault(target, []).append(node)
    todo = list(ranks)
    reached = set(todo)
    while todo:
        new = [node for node in back.get(todo.pop(), ()) if node not in reached]
        reached.update(new)
        todo += new
    return sum(node >= 0 for node in reached)
