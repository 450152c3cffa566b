"""Ranks of processes that go by their place in a server, or by the number of an actor."""

from __future__ import annotations

import pytest

from whichrank.model.evidence import Ref
from whichrank.records.events.base import Event
from whichrank.records.events.launchers import ActorDied
from whichrank.records.events.startup import WorldPlace
from whichrank.timeline.identity.places import with_ranks_of_places


def said(place: str, pid: int | None = None, source: str = "a.log", **more: int) -> Event:
    return Event(ref=Ref(source, "line 1", ""), place=place, pid=pid, **more)


def ranks(*events: Event) -> list[int | None]:
    return [event.rank for event in with_ranks_of_places(events)]


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        (["TP0", "TP5"], [0, 5]),
        (["PP0_TP0", "PP0_TP1", "PP1_TP0", "PP1_TP1"], [0, 1, 2, 3]),
        (["PP0_TP0", "PP1_TP1"], [None, None]),  # the size of a row is not known
        (["DP0_TP0", "DP1_TP0"], [None, None]),
    ],
)
def test_places(places: list[str], expected: list[int | None]) -> None:
    assert ranks(*(said(place, 10 + at) for at, place in enumerate(places))) == expected


def test_two_servers_have_the_same_places() -> None:
    assert ranks(said("TP0", 1, "prefill.log"), said("TP0", 1, "decode.log")) == [None, None]


def test_a_server_within_a_larger_job() -> None:
    assert ranks(said("TP0", 1), said("TP1", 2), said("", rank=7)) == [None, None, 7]


def test_a_process_that_says_its_rank_gives_it_to_its_other_lines() -> None:
    told = WorldPlace(ref=Ref("a.log", "line 1", ""), pid=31, number=3, size=8)
    assert ranks(told, said("", 31), said("", 32)) == [3, 3, None]


@pytest.mark.parametrize(("name", "rank"), [("x7WorkerDict_0:5", 5), ("x7WorkerDict_1:5", None), ("counter", None)])
def test_actors(name: str, rank: int | None) -> None:
    assert ranks(ActorDied(ref=Ref("driver.log", "line 1", ""), pid=77, name=name)) == [rank]
