"""Who waits for whom, and where the waiting ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from whichrank.timeline.collectives.meetings import Meeting, Meetings
from whichrank.timeline.collectives.waits import build_graph, components, reached_by, sinks

Graph = dict[int, list[int]]


def meeting(group: int, joined: dict[int, int], absent: tuple[int, ...] = (), **rest: object) -> Meeting:
    values = {"unseen": (), "parties": (tuple(joined),), **rest}
    return Meeting(group, 1, False, joined, frozenset(), absent, **values)  # type: ignore[arg-type]


def test_the_waiting_ends_at_the_idle_rank() -> None:
    """0 and 1 wait for 2, which waits for 3, which waits for nothing."""
    graph = build_graph(Meetings([meeting(0, {0: 0, 1: 10}, (2,)), meeting(1, {2: 20}, (3,))]))
    assert sinks(graph) == [(3,)]
    assert graph.waiting == (0, 1, 2)
    assert reached_by(graph, (3,)) == 4


def test_two_groups_in_opposite_order_are_a_circle() -> None:
    graph = build_graph(Meetings([meeting(0, {0: 0}, (1,)), meeting(1, {1: 10}, (0,))]))
    assert sinks(graph) == [(0, 1)]


def test_everybody_came() -> None:
    graph = build_graph(Meetings([meeting(0, {0: 0, 1: 10})]))
    assert graph.stalled == graph.complete == graph.meetings
    assert graph.waiting == ()


def test_a_member_that_is_held_up_elsewhere_is_waited_for() -> None:
    """All have queued the operation of group 0; the GPU of rank 1 is still in an older one that rank 2 never joined."""
    graph = build_graph(Meetings([meeting(0, {0: 5, 1: 15, 2: 25}), meeting(1, {1: 14}, (2,))]))
    assert graph.stalled == []
    assert [whom for _, whom in graph.awaited_by(0)] == [{1}]
    assert [whom for _, whom in graph.awaited_by(1)] == [{2}]
    assert sinks(graph) == [(1, 2)]


def test_members_without_a_dump_are_suspected_only_where_nobody_else_is_missing() -> None:
    graph = build_graph(Meetings([meeting(0, {0: 0}, unseen=(9,)), meeting(1, {1: 10}, (2,), unseen=(9,))]))
    assert [m.group for m in graph.suspected] == [0]


def test_of_a_group_with_unnamed_members_nothing_is_complete() -> None:
    graph = build_graph(Meetings([meeting(0, {0: 0}, open_ended=True)]))
    assert (graph.complete, graph.suspected, graph.waiting) == ([], [], ())


def test_size_of_a_large_standstill() -> None:
    """A thousand ranks wait for a thousand others: the graph stays as large as the evidence."""
    one = {rank: 10 * rank for rank in range(1000)}
    graph = build_graph(Meetings([meeting(0, one, tuple(range(1000, 2000)))]))
    assert len(graph.waiting) == 1000
    assert sum(map(len, graph.awaited)) == 1000
    assert len(sinks(graph)) == 1000


def reachable(edges: Graph, start: int) -> set[int]:
    found, todo = {start}, [start]
    while todo:
        for node in edges.get(todo.pop(), ()):
            if node not in found:
                found.add(node)
                todo.append(node)
    return found


@given(st.dictionaries(st.integers(0, 9), st.lists(st.integers(0, 9), max_size=4), max_size=10))
def test_components_are_what_reaches_each_other(edges: Graph) -> None:
    whole = {**{node: [] for targets in edges.values() for node in targets}, **edges}
    reach = {node: reachable(whole, node) for node in whole}
    expected = {tuple(sorted(b for b in whole if b in reach[a] and a in reach[b])) for a in whole}
    found = components(whole)
    assert set(found) == expected
    assert sum(map(len, found)) == len(whole)


def test_a_long_chain_needs_no_recursion() -> None:
    chain = {node: [node + 1] for node in range(50_000)}
    assert len(components({**chain, 50_000: []})) == 50_001
