"""Who is in which group, also where the dumps don't say."""

from __future__ import annotations

from tests.timeline.by_hand import Did, dump
from whichrank.records.dump import Dump
from whichrank.timeline.identity.groups import resolve_groups, world_size


def gloo(rank: int, tp: str, *, gathers: int = 2, world_gathers: int = 0) -> Dump:
    """A rank of a Gloo job: no members anywhere, but gathers show the size of a group."""
    made = dump(
        rank,
        {"0": None, tp: None},
        [Did("0", "all_gather", 1, line=1), Did(tp, "all_gather", 1, line=2)],
        backend="gloo",
    )
    factors = (world_gathers or 1, gathers)
    made.calls = [
        type(call)(**{**{f: getattr(call, f) for f in call.__slots__}, "output_sizes": ((8 * factor,),)})
        for call, factor in zip(made.calls, factors, strict=True)
    ]
    return made


def test_the_same_name_in_disjoint_groups_is_two_groups() -> None:
    dumps = [
        dump(0, {"1": (0, 1)}, [Did("1", "all_reduce", 1)]),
        dump(2, {"1": (2, 3)}, [Did("1", "all_reduce", 1)]),
    ]
    groups, mapping = resolve_groups(dumps, world_size(dumps))
    assert [group.members for group in groups] == [(0, 1), (2, 3)]
    assert [group.id for group in groups] == ["1", "1#2"]
    assert mapping == [[0], [1]]


def test_ids_are_local_to_a_process() -> None:
    one = dump(0, {"0": (0, 1), "7": (0, 1)}, [Did("7", "all_reduce", 1)])
    other = dump(1, {"7": (0, 1), "0": (0, 1)}, [Did("7", "all_reduce", 1)])
    _, mapping = resolve_groups([one, other], 2)
    assert mapping[0] == mapping[1][::-1]


def test_members_that_gloo_does_not_list_are_those_seen() -> None:
    dumps = [gloo(rank, "1" if rank < 2 else "2", world_gathers=4) for rank in range(4)]
    groups, _ = resolve_groups(dumps, world_size(dumps))
    assert {(group.name, group.members, group.certain) for group in groups} == {
        ("0", (0, 1, 2, 3), True),
        ("1", (0, 1), True),
        ("2", (2, 3), True),
    }


def test_the_one_missing_rank_is_put_where_one_is_missing() -> None:
    dumps = [gloo(rank, "1" if rank < 2 else "2", world_gathers=4) for rank in (0, 1, 3)]
    groups, _ = resolve_groups(dumps, world_size(dumps))
    assert ("2", (2, 3), True) in {(group.name, group.members, group.certain) for group in groups}


def test_two_missing_ranks_are_put_nowhere() -> None:
    """Which of two groups the missing ones are in, nothing tells."""
    dumps = [gloo(rank, "1" if rank < 2 else "2", world_gathers=4) for rank in (0, 3)]
    groups, _ = resolve_groups(dumps, world_size(dumps))
    assert {(group.name, group.members, group.certain) for group in groups if group.name != "0"} == {
        ("1", (0,), False),
        ("2", (3,), False),
    }


def test_the_world_is_as_large_as_what_is_gathered_in_it() -> None:
    assert world_size([gloo(0, "1", world_gathers=16)]) == 16
    assert world_size([gloo(0, "1", world_gathers=1 << 40)]) == 1
