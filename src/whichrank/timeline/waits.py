"""Who waits for whom, over all groups; and where the waiting ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from whichrank.timeline.meetings import Meeting, Meetings


@dataclass(slots=True)
class WaitGraph:
    """An edge leads from a waiting rank to one that has not come to the same meeting."""

    edges: dict[int, set[int]] = field(default_factory=dict)
    heads: dict[int, list[Meeting]] = field(default_factory=dict)
    """Rank -> the meetings it waits in, one per group or channel: the earliest."""
    stalled: list[Meeting] = field(default_factory=list)
    """Meetings to which everybody came with the same thing."""
    suspected: list[Meeting] = field(default_factory=list)
    """Meetings where only ranks without a dump are missing."""


def build_graph(meetings: Meetings) -> WaitGraph:
    """The wait-for graph over all ranks of all pending meetings."""
    graph = WaitGraph()
    seen: set[tuple[int, int, bool, frozenset[int]]] = set()
    for meeting in meetings.pending:
        channel = frozenset((*meeting.joined, *meeting.absent, *meeting.unseen)) if meeting.p2p else frozenset()
        heads = [r for r in meeting.pending if (r, meeting.group, meeting.p2p, channel) not in seen]
        if not heads:
            continue
        missing = set(meeting.absent)
        if not missing and not meeting.disagrees:
            if meeting.unseen:
                graph.suspected.append(meeting)
                missing = set(meeting.unseen)
            else:
                graph.stalled.append(meeting)
        for rank in heads:
            seen.add((rank, meeting.group, meeting.p2p, channel))
            graph.heads.setdefault(rank, []).append(meeting)
            others = {other for party in meeting.parties if rank not in party for other in party}
            graph.edges.setdefault(rank, set()).update(missing | others)
        for rank in missing:
            graph.edges.setdefault(rank, set())
    return graph


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


def sinks(graph: WaitGraph) -> list[tuple[int, ...]]:
    """Components that wait for nobody outside themselves: there the waiting ends."""
    return [part for part in components(graph.edges) if not any(graph.edges[r] - set(part) for r in part)]
