"""Records as plain values and back. What comes back is checked against the types of the records: nothing is trusted."""

from __future__ import annotations

from collections import Counter
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import Any, get_args, get_origin

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct, structs

from whichrank.model.errors import UnreadableError
from whichrank.records.events.base import Event, name_of
from whichrank.records.events.messages import KnownMessage
from whichrank.records.events.run_state import Environment, TorchEnv
from whichrank.records.nccl import NcclLog

MOST_ITEMS = 1 << 22
"""Of one column."""
_EARLIER = ("LogEvent", "Sighting")
_RENAMED = {"class": "error", "whom": "peer", "kind": "scheduler", "host": "server"}
"""Values of events that had other names."""
_FEW = 8
"""Values of a column that are not worth to be packed."""


@cache
def kinds() -> dict[str, type[Struct]]:
    """Name -> class of everything that readers give."""
    package = import_module("whichrank.records")
    modules = [import_module(entry.name) for entry in walk_packages(package.__path__, f"{package.__name__}.")]
    for module in modules:  # types are looked up by name, and some modules import this one for type checkers alone
        vars(module).setdefault("npt", npt)
    return {
        _name(value): value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Struct) and value.__module__ == module.__name__
    }


def _name(kind: type) -> str:
    return name_of(kind) if issubclass(kind, Event) else kind.__name__


def plain(record: Struct) -> list[Any]:
    """A record as its kind and its values; what is as the kind has it by default is left out."""
    values = msgspec.to_builtins(record, enc_hook=_column, builtin_types=(bytes,))
    kind = type(record)
    for name, value in _defaults(kind).items():
        if values[name] == value and type(values[name]) is type(value):
            del values[name]
    return [_name(kind), values]


@cache
def _defaults(kind: type[Struct]) -> dict[str, Any]:
    if issubclass(kind, Event):
        return {}  # msgspec leaves them out
    optional = kind.__struct_fields__[len(kind.__struct_fields__) - len(kind.__struct_defaults__) :]
    defaults = zip(optional, kind.__struct_defaults__, strict=True)
    return {name: default for name, default in defaults if isinstance(default, str | int | float | None)}


def restored(value: Any) -> Any:
    """The record of such values; UnreadableError where they are not those of one."""
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[0], str):
        raise UnreadableError("a record of an unknown kind")
    try:
        name, values = _renewed(*value) if value[0] in _EARLIER else value
        if not isinstance(name, str) or name not in kinds():
            raise UnreadableError("a record of an unknown kind")
        return _restored(kinds()[name], values, strict=value[0] not in _EARLIER)
    except (msgspec.ValidationError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableError(f"a damaged record of kind {value[0]}: {error}"[:200]) from error


def _renewed(name: str, values: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """An event as earlier versions wrote it: one record for all kinds, with what they differ in under `data`."""
    shared = {key: value for key, value in values.items() if key not in ("kind", "data", "groups")}
    if name == "Sighting":
        return name_of(KnownMessage), shared | {"captures": values.get("groups", {})}
    data = {_RENAMED.get(key, key): value for key, value in values.get("data", {}).items()}
    if values.get("kind") in (name_of(Environment), name_of(TorchEnv)):
        data["variables"] = {k: v for k, v in data.items() if isinstance(v, str) and not k.startswith("pg_")}
    return values.get("kind"), data | shared


def _restored(kind: type[Struct], values: Any, *, strict: bool) -> Any:
    shape = _shape(kind)
    found = msgspec.convert(values, shape, dec_hook=_uncolumn, strict=strict)
    if isinstance(found, NcclLog):
        _relink(found)
    if shape is kind:
        return found
    if not all(_is_value(value) for value in found.data.values()):
        raise ValueError("data of an event that is none")
    return kind(**structs.asdict(found))


def _relink(log: NcclLog) -> None:
    """A log's calls belong to its own processes: the same objects, not copies."""
    for calls in log.calls:
        own = next((process for process in log.processes if process == calls.process), calls.process)
        calls.process = own


@cache
def _shape(kind: type[Struct]) -> Any:
    """What is checked by: the class itself, or one like it whose `data` may hold what msgspec has no type for."""
    try:
        msgspec.msgpack.Decoder(kind, dec_hook=_uncolumn)
    except TypeError:
        fields: list[Any] = []
        for field in structs.fields(kind):
            type_ = dict[str, Any] if field.name == "data" else field.type
            if field.default_factory is not msgspec.NODEFAULT:
                fields.append((field.name, type_, msgspec.field(default_factory=field.default_factory)))
            else:
                fields.append((field.name, type_, msgspec.field(default=field.default)))
        return msgspec.defstruct(kind.__name__, fields)
    return kind


def _is_value(value: Any) -> bool:
    """What an event's `data` may hold (`records.hardware.Value`)."""
    if isinstance(value, list):
        return all(isinstance(item, int | str) for item in value)
    return isinstance(value, str | int | float)


def _column(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype == np.int64 and value.ndim == 1 and len(value) > _FEW:
            return ["<i8", list(value.shape), *_differences(value)]
        return [value.dtype.str, list(value.shape), value.tobytes()]
    if isinstance(value, np.generic):
        return value.item()
    raise NotImplementedError(type(value).__name__)


def _uncolumn(kind: Any, value: Any) -> Any:
    """An array of the type that the record declares."""
    if get_origin(kind) is Counter:
        return Counter(msgspec.convert(value, dict[get_args(kind)[0], int]))  # type: ignore[misc]
    declared = get_args(kind)
    of = get_args(declared[1]) if len(declared) == 2 else ()
    name, shape, data, *rest = value
    column = np.dtype(name)
    if column.kind not in "iufb" or (of and of[0] is not Any and column.type is not of[0]):
        raise ValueError("a column of another type")
    if not all(isinstance(size, int) and 0 <= size <= MOST_ITEMS for size in shape):
        raise ValueError("a column of no size")
    if rest:
        return _summed(shape, data, *rest)
    return np.frombuffer(data, column).reshape(shape).copy()


def _differences(column: npt.NDArray[np.int64]) -> tuple[bytes, int, str]:
    """From one value to the next, in the smallest type that holds them: what grows evenly packs well."""
    first = int(column[0])
    steps = np.diff(column, prepend=first)
    for name in ("<i1", "<i2", "<i4", "<i8"):
        if np.iinfo(name).min <= steps.min() and steps.max() <= np.iinfo(name).max:
            break
    return steps.astype(name).tobytes(), first, name


def _summed(shape: Any, data: Any, first: Any, name: Any) -> npt.NDArray[np.int64]:
    if name not in ("<i1", "<i2", "<i4", "<i8") or not isinstance(first, int) or len(shape) != 1:
        raise ValueError("a column of another type")
    steps = np.frombuffer(data, name)
    if len(steps) != shape[0] or not -(1 << 62) < first < 1 << 62:
        raise ValueError("a column of another size")
    summed: npt.NDArray[np.int64] = steps.astype(np.int64).cumsum() + first
    return summed
