"""Counts and flags that some ranks hold otherwise than all others."""

from __future__ import annotations

import ast

from whichrank.evidence.collectors import outline
from whichrank.records.outline import Outline
from whichrank.records.variables import HeldFrame, Variables
from whichrank.timeline.collectives.held_values import odd_values, singled_out

FILE = "/srv/train.py"
LINES = Outline(counters={FILE: frozenset({"step", "losses"})}, roles={FILE: frozenset({"writer"})})


def held(*of_ranks: dict[str, int]) -> dict[int, Variables]:
    frames = [(HeldFrame(FILE, 20, "main", values),) for values in of_ranks]
    return {rank: Variables(rank, f"variables/rank_{rank}.json", of_rank) for rank, of_rank in enumerate(frames)}


def odd(*of_ranks: dict[str, int]) -> dict[str, tuple[int, ...]]:
    return {each.name: each.ranks for each in odd_values(held(*of_ranks), LINES)}


def test_what_one_rank_holds_otherwise() -> None:
    assert odd({"leader": 1}, {"leader": 1}, {"leader": 2}, {"leader": 1}) == {"leader": (2,)}
    assert odd({"len(parts)": 3}, {"len(parts)": 4}, {"len(parts)": 4}) == {"len(parts)": (0,)}


def test_how_far_a_rank_is_and_which_one_it_is_says_nothing() -> None:
    values = [{"step": 7, "self.losses": 3, "self.local_rank": 0, "writer": True}]
    values += [{"step": 8, "self.losses": 4, "self.local_rank": 1, "writer": False}] * 3
    assert odd(*values) == {}


def test_nobody_is_odd_among_two_or_on_two_sides() -> None:
    assert odd({"leader": 1}, {"leader": 2}) == {}
    assert odd({"leader": 1}, {"leader": 1}, {"leader": 2}, {"leader": 2}) == {}


def test_functions_are_not_compared_with_others() -> None:
    told = held({"n": 1}, {"n": 1}, {"n": 1})
    told[3] = Variables(3, "r3", (HeldFrame(FILE, 50, "evaluate", {"n": 2}),))
    assert odd_values(told, LINES) == []


def test_a_candidate_is_singled_out_only_where_all_says_the_same() -> None:
    one = odd_values(held({"a": 1}, {"a": 1}, {"a": 2}, {"a": 1}), LINES)
    assert singled_out(one, (1, 2))[0] == (2,)
    assert singled_out(one, (0, 1))[0] == (), "it is not about these"
    assert singled_out(one, (2,))[0] == (), "there is nothing to decide"
    two = odd_values(held({"a": 1, "b": 0}, {"a": 1, "b": 5}, {"a": 2, "b": 0}, {"a": 1, "b": 0}), LINES)
    assert singled_out(two, (1, 2))[0] == ()


def test_flags_of_objects_are_shown_and_accuse_nobody() -> None:
    told = odd_values(held({"stage.head": True}, {"stage.head": False}, {"stage.head": False}), LINES)
    assert [each.ranks for each in told] == [(0,)]
    assert singled_out(told, (0, 1))[0] == ()


def test_names_that_count() -> None:
    script = """
for step, batch in enumerate(loader):
    self.seen += len(batch)
    total = total + 1
    losses.append(loss)
    leader = league.leader(scores)
    parts = batch.chunk(4)
"""
    assert outline.counters(ast.parse(script)) == ["batch", "losses", "seen", "step", "total"]


def test_names_that_say_which_rank_this_is() -> None:
    script = """
self.pipe, self.stage = divmod(self.rank, stages)
self.first, self.last = self.stage == 0, self.stage == stages - 1
writer = dist.get_rank() == 0
leader = scores.argmax()
shard, size = load(path)
"""
    assert outline.roles(ast.parse(script)) == ["first", "last", "pipe", "stage", "writer"]
