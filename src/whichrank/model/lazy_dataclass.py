"""`dataclass` of the standard library, which compiles nothing before the first instance is made.

The standard one compiles six methods for a class: a millisecond. A command loads a hundred of these classes, and uses
half of them; this was a fifth of what a short `diagnose` takes.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - for others to import
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, slots: bool = False, eq: bool = True) -> Any:
        """The same class as by the standard decorator."""
        if cls is None:
            return lambda cls: _made(cls, frozen=frozen, slots=slots, eq=eq)
        return _made(cls, frozen=frozen, slots=slots, eq=eq)


def _made(cls: type, *, frozen: bool, slots: bool, eq: bool) -> type:
    named = cls.__dict__.get("__annotations__", {})  # noqa: RUF063 - what it would import takes longer than we save
    own = {name: cls.__dict__[name] for name in (*named, "__post_init__", "__orig_bases__") if name in cls.__dict__}
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)
    made.__dataclass_params__.frozen, made.__dataclass_params__.eq = frozen, eq
    members = {"__init__": _init(made, {**own, "__annotations__": named}, frozen=frozen), "__repr__": _repr}
    if eq:
        members.update(_compared(made, frozen=frozen))
    if frozen:
        members.update(__setattr__=_refuse, __delattr__=_refuse)
        if slots:
            members.update(__getstate__=_state, __setstate__=_restore)
    for name, member in members.items():
        if name not in cls.__dict__ or (name == "__hash__" and cls.__dict__[name] is None):
            setattr(made, name, member)
    return made  # type: ignore[no-any-return]


def _init(made: Any, own: dict[str, Any], *, frozen: bool) -> Any:
    def __init__(self: Any, *args: Any, **named: Any) -> None:  # noqa: N807
        twin: Any = dataclasses.dataclass(repr=False, eq=False, frozen=frozen)(type(made.__name__, made.__bases__, own))
        made.__init__ = twin.__init__
        made.__init__(self, *args, **named)

    own["__module__"] = made.__module__
    return __init__


def _compared(made: Any, *, frozen: bool) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(made) if field.compare]
    values = attrgetter(*names) if names else lambda _: ()

    def __eq__(self: Any, other: object) -> bool:  # noqa: N807
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(values(self))

    return {"__eq__": __eq__, "__hash__": __hash__ if frozen else None}


def _repr(self: Any) -> str:
    values = [f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr]
    return f"{type(self).__qualname__}({', '.join(values)})"


def _refuse(self: Any, name: str, *_: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot change '{name}' of a {type(self).__name__}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
