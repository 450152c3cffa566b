"""What is known of a value: why it may differ between ranks, what it is for each of four ranks, what kind of thing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from whichrank.source.code.index import Class, Function

# Conditions on the rank are played through for this many ranks.
WORLD = 4
# More reasons than this for one value say nothing new.
MOST_ORIGINS = 4
# A registry of callbacks with more than this is not followed further.
MOST_FUNCTIONS = 12


class Origin(Struct, frozen=True):
    """Where a difference between ranks comes from, or the parameter that would bring it."""

    kind: str
    what: str
    file: str
    line: int
    local: bool = False
    """A number that starts anew on every node: LOCAL_RANK."""


class ParamOrigin(Struct, frozen=True):
    """What a parameter of a function brings, once its callers are known."""

    function: Function
    name: str
    length: bool = False


AnyOrigin: TypeAlias = "Origin | ParamOrigin"
Callee: TypeAlias = "Class | Function"
Taint: TypeAlias = frozenset[AnyOrigin]
CLEAN: Taint = frozenset()
NO_TAGS: frozenset[str] = frozenset()


WORLD_SIZE = "world size"
"""Marks the number of ranks."""


class Value(NamedTuple):
    taint: Taint = CLEAN
    length: Taint = CLEAN
    """Why its number of elements, or its shape, may differ."""
    tags: frozenset[str] = NO_TAGS
    """What kind of thing it is: ddp, fsdp, loader, accelerator…"""
    ranks: tuple[Any, ...] | None = None
    """Its value for each of the ranks 0 to 3, where that is known."""
    thing: Class | Function | None = None
    """The class it is an object of, or the function it is."""
    items: tuple[Value, ...] | None = None
    holds: tuple[Callee, ...] = ()
    """Functions that it may be besides, or that a container of them holds."""
    kinds: tuple[Class, ...] = ()
    """The classes it may be an object of, where there are several."""
    fields: Mapping[Any, Value] | None = None
    """The values of a dictionary by key, or the keyword arguments of a partial."""
    order: Taint = CLEAN
    """Why the same elements may come in another order."""
    cast: Taint = CLEAN
    """Why its type may differ."""

    def tagged(self, *tags: str) -> Value:
        return self._replace(tags=self.tags | set(tags))


UNKNOWN = Value()


def union(*taints: Taint) -> Taint:
    """All reasons, up to a bound."""
    parts = [taint for taint in taints if taint]
    if not parts:
        return CLEAN
    if len(parts) == 1:
        return parts[0]
    merged = parts[0].union(*parts[1:])
    return merged if len(merged) <= MOST_ORIGINS * 2 else frozenset(sorted(merged, key=_order)[: MOST_ORIGINS * 2])


def _order(origin: AnyOrigin) -> tuple[bool, str, int, str]:
    if isinstance(origin, ParamOrigin):
        return True, origin.function.name, origin.function.line, origin.name
    return False, origin.kind, origin.line, origin.what


def join(values: Iterable[Value]) -> Value:
    """A value that is one of these."""
    several = [value for value in values if value is not UNKNOWN]
    if len(several) < 2:
        return several[0] if several else UNKNOWN
    first = several[0]
    same_ranks = first.ranks if all(_same(v.ranks, first.ranks) for v in several) else None
    return Value(
        union(*(v.taint for v in several)),
        union(*(v.length for v in several)),
        frozenset().union(*(v.tags for v in several)),
        same_ranks,
        next((v.thing for v in several if v.thing is not None), None),
        _items(several),
        functions_of(several),
        _kinds(several),
        _fields(several),
        union(*(v.order for v in several)),
        union(*(v.cast for v in several)),
    )


def functions_of(values: Iterable[Value]) -> tuple[Callee, ...]:
    """All functions and classes that one of these values is or holds."""
    found: dict[Callee, None] = {}
    for value in values:
        if "itself" in value.tags and value.thing is not None:
            found.setdefault(value.thing)
        for function in value.holds:
            found.setdefault(function)
    return tuple(found)[:MOST_FUNCTIONS]


def objects_of(values: Iterable[Value]) -> tuple[Class, ...]:
    """The classes that one of these values is an object of, or holds objects of."""
    found: dict[Class, None] = {}
    for value in values:
        if "itself" not in value.tags:
            found.update(dict.fromkeys(value.kinds or ((value.thing,) if value.thing is not None else ())))  # type: ignore[arg-type]
    return tuple(found)[:MOST_FUNCTIONS]


def _kinds(several: list[Value]) -> tuple[Class, ...]:
    found = objects_of(several)
    held = any(value.kinds and value.thing is None for value in several)
    return found if len(found) > 1 or held else ()


def _fields(several: list[Value]) -> Mapping[Any, Value] | None:
    """Dictionaries with the same keys, joined key by key."""
    first = several[0].fields
    if first is None or any(value.fields is None or value.fields.keys() != first.keys() for value in several):
        return None
    return {key: join(value.fields[key] for value in several if value.fields is not None) for key in first}


def _items(several: list[Value]) -> tuple[Value, ...] | None:
    """Tuples of one length, joined place by place."""
    lengths = {len(value.items) if value.items is not None else -1 for value in several}
    if len(lengths) != 1 or -1 in lengths or max(lengths) > 8:
        return None
    return tuple(join(each) for each in zip(*(value.items or () for value in several), strict=True))


def _same(one: tuple[Any, ...] | None, other: tuple[Any, ...] | None) -> bool:
    try:
        return one == other
    except (TypeError, ValueError, RecursionError):
        return False


def constant(value: Any) -> Value:
    """The same on every rank."""
    return Value(ranks=(value,) * WORLD)


def world_size() -> Value:
    return constant(WORLD).tagged(WORLD_SIZE)


def per_rank(function: Callable[..., Any], *arguments: Value) -> tuple[Any, ...] | None:
    """The function applied for each rank, if all arguments are known for each."""
    if any(argument.ranks is None for argument in arguments):
        return None
    try:
        return tuple(
            function(*(argument.ranks[rank] for argument in arguments if argument.ranks is not None))
            for rank in range(WORLD)
        )
    except Exception:  # noqa: BLE001 - whatever the program's own expression raises, it is not known
        return None


def differs(value: Value) -> bool:
    """Whether the truth of a value may differ between ranks."""
    if not value.taint:
        return False
    return value.ranks is None or len({bool(v) for v in value.ranks}) > 1


def substitute(taint: Taint, function: Function | None, bound: Mapping[str, Value]) -> Taint:
    """The reasons of a callee with its parameters replaced by what this call passes."""
    if not taint:
        return CLEAN
    kept: list[Taint] = []
    for origin in taint:
        if isinstance(origin, ParamOrigin) and origin.function is function:
            value = bound.get(origin.name)
            if value is not None:
                kept.append(value.length if origin.length else value.taint)
        else:
            kept.append(frozenset({origin}))
    return union(*kept)
