"""Hosts of ranks that say nothing of it, where every host has as many."""

from __future__ import annotations

import pytest

from whichrank.timeline.identity.even_blocks import note_even_blocks
from whichrank.timeline.identity.who import People


def people(world: int, hosts: dict[int, str]) -> People:
    found = People(world=world)
    for rank, host in hosts.items():
        found.note(rank, host=host)
    return found


@pytest.mark.parametrize(
    ("world", "known", "rank", "host"),
    [
        (32, {0: "n-1", 9: "n-2", 16: "n-3", 22: "n-3", 31: "n-4"}, 20, "n-3"),
        (28, {0: "n-1", 8: "n-2", 16: "n-3", 24: "n-4", 27: "n-4"}, 7, "n-1"),
        (12, {0: "n-1", 4: "n-2", 8: "n-3"}, 11, "n-3"),
        (12, {0: "n-1", 4: "n-2", 7: "n-3"}, 11, None),
        (32, {0: "n-1", 8: "n-1", 16: "n-2", 24: "n-3"}, 9, None),
        (16, {0: "n-1", 8: "n-2"}, 9, None),
        (
            32,
            {rank: f"n-{rank // 4}" for rank in (*range(4), *range(12, 16), *range(20, 24), *range(24, 28))},
            17,
            None,
        ),
        (32, {rank: f"n-{rank // 8}" for rank in (0, 1, 8, 9, 16, 17, 24, 25)}, 12, "n-1"),
    ],
    ids=["between", "the last is silent", "one of each", "no blocks", "in turn", "two hosts", "whole", "the first two"],
)
def test_ranks_of_blocks(world, known, rank, host):
    found = people(world, known)
    note_even_blocks(found)
    assert found.host_of(rank) == host


@pytest.mark.parametrize(
    ("free", "host"),
    [(["pod-2"], "pod-2"), (["pod-2", "pod-7"], None), (["other"], None), (["pod-9"], None)],
    ids=["in order", "two", "of another kind", "out of order"],
)
def test_the_one_host_of_which_no_rank_is_known(free, host):
    found = people(32, {0: "pod-0", 7: "pod-0", 8: "pod-1", 12: "pod-1", 24: "pod-3", 31: "pod-3"})
    note_even_blocks(found, free)
    assert found.host_of(19) == host
