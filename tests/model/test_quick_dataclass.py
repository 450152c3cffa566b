"""Dataclasses whose methods are written when they are first needed behave as standard ones."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
from dataclasses import field
from typing import ClassVar

import pytest

from whichrank.model.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    """Frozen."""

    x: int
    y: int = 0
    tags: tuple[str, ...] = ()

    @property
    def sum(self) -> int:
        return self.x + self.y


@dataclass(slots=True)
class Box:
    """Not frozen, with a factory and a check."""

    name: str
    things: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = self.name.upper()


@dataclass(slots=True)
class LargeBox(Box):
    """One that inherits."""

    depth: int = 3


@dataclass(slots=True, eq=False)
class Apart:
    """Compared by identity."""

    x: int


@dataclass(slots=True)
class WithConstant:
    """Left to the standard decorator."""

    LIMIT: ClassVar[int] = 3
    x: int = 1
    size: int = field(init=False, default=7)


def test_instances_are_made_compared_and_shown_as_usual():
    assert Point(1, y=2) == Point(1, 2)
    assert Point(1) != Point(2)
    assert repr(Point(1)) == "Point(x=1, y=0, tags=())"
    assert hash(Point(1)) == hash(Point(1))
    assert Point(3, 4).sum == 7
    assert Box("a").things is not Box("a").things
    assert Box("a").name == "A"
    assert LargeBox("b", depth=1) == LargeBox("b", [], 1)
    assert LargeBox("b") != Box("b")
    assert Apart(1) != Apart(1)
    assert (WithConstant().x, WithConstant().size, WithConstant.LIMIT) == (1, 7, 3)


def test_wrong_calls_are_refused():
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        Point()
    with pytest.raises(dataclasses.FrozenInstanceError):
        Point(1).x = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        del Point(1).x
    with pytest.raises(AttributeError):
        Box("a").other = 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(Box("a"))


def test_fields_are_there_before_the_first_instance():
    @dataclass(frozen=True, slots=True)
    class Fresh:
        a: int
        b: str = "x"

    assert dataclasses.is_dataclass(Fresh)
    assert [(f.name, f.default) for f in dataclasses.fields(Fresh)] == [("a", dataclasses.MISSING), ("b", "x")]
    assert Fresh.__match_args__ == ("a", "b")
    assert Fresh.__qualname__.endswith("<locals>.Fresh")
    assert not hasattr(Fresh(1), "__dict__")
    match Fresh(1, "y"):
        case Fresh(a, b):
            assert (a, b) == (1, "y")


@pytest.mark.parametrize("value", [Point(1, 2, ("t",)), Box("a", [1]), LargeBox("b", [2], 9)])
def test_values_travel(value):
    assert pickle.loads(pickle.dumps(value)) == value
    assert copy.deepcopy(value) == value
    assert dataclasses.asdict(value) == {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}


def test_replace():
    assert dataclasses.replace(Point(1, 2), y=5) == Point(1, 5)


def test_threads_may_make_the_first_instances_at_the_same_time():
    for _ in range(20):

        @dataclass(frozen=True, slots=True)
        class Fresh:
            a: int
            things: list[int] = field(default_factory=list)

        start, made = threading.Barrier(4), []

        def make(kind=Fresh, start=start, made=made):
            start.wait()
            made.append(kind(1))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [Fresh(1)] * 4
