"""Dataclasses that are compiled late behave like those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import field
from typing import ClassVar, Generic, TypeVar

import pytest

from whichrank.model.lazy_dataclass import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Point:
    """Frozen."""

    KIND: ClassVar[str] = "point"
    x: int
    y: int = 2
    tags: tuple[str, ...] = ()
    note: str = field(default="", compare=False, repr=False)


@dataclass(slots=True)
class Bag:
    """It may change."""

    items: list[int] = field(default_factory=list)
    size: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.size = len(self.items)


@dataclass(slots=True)
class Wider(Bag):
    """A class below another."""

    more: int = 7


@dataclass(eq=False, slots=True)
class Alone:
    """Equal to itself only."""

    x: int = 0


@dataclass(slots=True)
class Box(Generic[T]):
    """Of something."""

    held: T


def test_values_and_defaults() -> None:
    assert (Point(1).x, Point(1).y, Point(1, y=5).y, Point.KIND) == (1, 2, 5, "point")
    assert repr(Point(1, tags=("a",))) == "Point(x=1, y=2, tags=('a',))"
    assert Bag([1, 2]).size == 2
    assert Bag().items is not Bag().items
    assert (Wider([1], 3).more, Wider([1]).size) == (3, 1)
    assert Box("x").held == "x"
    for wrong in ((), (1, 2, (), "", 5)):
        with pytest.raises(TypeError):
            Point(*wrong)


def test_equality_and_hashes() -> None:
    assert Point(1, note="a") == Point(1, note="b")
    assert hash(Point(1, note="a")) == hash(Point(1, note="b"))
    assert Point(1) != Point(2)
    assert Bag([1]) == Bag([1])
    assert Bag([1]) != Wider([1])
    assert Alone(1) != Alone(1)
    assert hash(Alone()) is not None
    with pytest.raises(TypeError):
        hash(Bag())


def test_frozen() -> None:
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        del point.x
    assert not hasattr(point, "__dict__")


def test_the_tools_of_the_standard_library() -> None:
    assert dataclasses.is_dataclass(Point)
    assert [f.name for f in dataclasses.fields(Wider)] == ["items", "size", "more"]
    assert dataclasses.replace(Point(1), y=9) == Point(1, 9)
    assert dataclasses.asdict(Point(1))["y"] == 2
    match Point(4):
        case Point(x, y):
            assert (x, y) == (4, 2)
    for one in (Point(1, note="n"), Bag([3]), Wider([1], 2)):
        for twin in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one)):
            assert twin == one
    assert pickle.loads(pickle.dumps(Point(1, note="n"))).note == "n"
