"""Shapes and types of tensors, by the calls that make or cast them."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from whichrank.source.code.evaluating import equal_sizes
from whichrank.source.code.evaluating.choices import CARRIED
from whichrank.source.code.evaluating.names import TYPE
from whichrank.source.code.evaluating.types import DTYPES, RAGGED, own_kind, type_of, wide
from whichrank.source.code.values import (
    CLEAN,
    UNKNOWN,
    Origin,
    Taint,
    Value,
    union,
)
from whichrank.source.nodes import last_name

if TYPE_CHECKING:
    from whichrank.source.code.calling.calls import Call
    from whichrank.source.code.frame import Frame

_SHAPED = frozenset({
    "zeros", "ones", "empty", "full", "randn", "rand", "arange", "new_empty", "new_zeros", "new_ones", "randperm",
    "randint",
})  # fmt: skip
_INTEGERS = frozenset({"randperm", "randint", "arange"})
_RANDOM = frozenset({"randn", "rand", "randperm", "randint"})
_ALIASES = {"long": "int64", "int": "int32", "float": "float32", "double": "float64", "half": "float16"}
_FROM_DATA = frozenset(
    {"torch.tensor", "torch.as_tensor", "torch.full_like", "torch.zeros_like", "torch.ones_like", "torch.empty_like"}
)
_BLANK = frozenset({"zeros_like", "ones_like", "empty_like"})
"""Tensors of the shape of another one, without its numbers."""
_INTEGER_NAME = re.compile(r"(?:^|_)(?:ids?|idxs?|ind(?:ex|exes|ices)|labels|tokens|counts|lengths|lens)$")
_JOINED = frozenset({"torch.stack", "torch.cat", "torch.concat", "torch.vstack", "torch.hstack"})
_COUNTS = frozenset({"bincount", "histc"})
_DTYPES = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "bfloat16": "bfloat16",
    "int": "int32",
    "long": "int64",
}


def tensor(frame: Frame, made: Call) -> Value | None:
    """Shapes and types of tensors."""
    if made.name in _SHAPED and (made.full.startswith("torch.") or made.name.startswith("new_")):
        return _made(frame, made)
    if isinstance(made.node.func, ast.Attribute) and (made.name == "to" or (made.name in _DTYPES and not made.args)):
        return _cast(made)
    if made.full in _FROM_DATA and made.args:
        return _from_data(made)
    if made.full == "torch.from_numpy" and made.args:
        return made.args[0]._replace(ranks=None, items=None)
    if made.name in _COUNTS:
        return _counted(frame, made)
    if made.full in _JOINED and made.args and made.node.args:
        return _joined(made)
    if made.name == "chunk":
        return Value(made.receiver.taint, CLEAN, made.receiver.tags & {"wrapped_output"})
    return None


def _joined(made: Call) -> Value | None:
    """`torch.cat(parts)`: longer where this rank's own data let more through, unless it is filled up."""
    tags = frozenset().union(*(value.tags & CARRIED for value in made.args))
    taint = union(*(value.taint for value in made.args))
    if mark := equal_sizes.joined(made.node.args[0], made.args[0]):
        return Value(taint, tags=tags | mark)
    length = _filtered(made.args[0])
    return Value(taint, length, tags) if length else None


def _filtered(value: Value) -> Taint:
    """Why a list, or what it holds, is longer here than elsewhere: what this rank's own data let through."""
    why = union(value.length, value.taint) if RAGGED in value.tags else value.length
    return frozenset(o for o in why if isinstance(o, Origin) and o.kind == "data")


def _made(frame: Frame, made: Call) -> Value:
    """`torch.zeros(n)`: its shape is what it is given."""
    sizes = made.args[:1] if made.name == "full" else made.args
    length = union(*(value.taint for value in sizes if "columns" not in value.tags))
    shape = ", ".join(map(ast.unparse, made.node.args))[:80]
    tags = frozenset({f"dtype:{kind}" for kind in (_dtype(made),) if kind} | {f"shape:{shape}"})
    tags |= equal_sizes.lacking(sizes)
    own = made.keywords.get("generator", UNKNOWN).taint
    if made.name in _RANDOM and "torch" not in frame.analysis.seeded and "generator" not in made.keywords:
        own = union(own, frozenset({Origin("random", f"torch.{made.name}()", *frame.at(made.node))}))
    cast = _local_type(made)
    return Value(union(own, cast), length, tags, order=own if made.name == "randperm" else CLEAN, cast=cast)


def _cast(made: Call) -> Value:
    """`x.half()`, `x.to(torch.float16)`, `x.to(device)`."""
    if cast := _local_type(made):
        tags = frozenset(tag for tag in made.receiver.tags if not tag.startswith(("dtype:", "cast:")))
        return made.receiver._replace(taint=union(made.receiver.taint, cast), tags=tags, cast=cast, ranks=None)
    types = [_DTYPES[made.name]] if made.name in _DTYPES else []
    given = [*made.node.args, *(k.value for k in made.node.keywords)]
    names = (node.attr for node in given if isinstance(node, ast.Attribute))
    types += [name for name in names if name.startswith(("float", "bfloat", "int", "half", "double"))]
    tags = made.receiver.tags
    if not types and any(_may_be_type(node) for node in given):
        tags = frozenset(tag for tag in tags if not tag.startswith(("dtype:", "cast:")))
    for name in types:
        tags = frozenset(tag for tag in tags if not tag.startswith(("dtype:", "cast:"))) | {f"cast:{name}"}
    return made.receiver._replace(tags=tags, ranks=None, cast=CLEAN if types else made.receiver.cast)


def _from_data(made: Call) -> Value:
    """`torch.tensor(numbers)`: as long as what it is made of."""
    first, cast = made.args[0], _local_type(made)
    typed = made.full != "torch.tensor" or "dtype" in made.keywords  # else as its elements are
    kinds = {_dtype(made)} if typed else _element_types(first, made.node.args[0] if made.node.args else None)
    if len(kinds) > 1 and not cast:
        cast = first.taint
    if not typed and not cast:
        cast = own_kind(first)
    if not typed and not cast and _whole_numbers(first, made.node.args[0]):
        cast = first.length  # a list that is empty here makes a tensor of float32
    tags = {f"dtype:{kind}" for kind in kinds if kind and len(kinds) == 1}
    if first.items and not any(item.items is not None for item in first.items):
        tags.add(f"shape:{len(first.items)}")
    own = CLEAN if made.name in _BLANK else first.taint
    return Value(union(own, cast), first.length, frozenset(tags), cast=cast)


def _whole_numbers(value: Value, node: ast.expr) -> bool:
    """Whether a list holds whole numbers, by its type or by what it is called."""
    return type_of(value) == "int64" or (value.ranks is None and _INTEGER_NAME.search(last_name(node)) is not None)


def _element_types(value: Value, node: ast.expr | None) -> set[str]:
    """The types of the tensors that `torch.tensor` makes of plain numbers: one, or another one on some ranks."""
    if value.ranks is not None:
        return {_of_number(each) for each in value.ranks}
    arms = [node.body, node.orelse] if isinstance(node, ast.IfExp) else [node]
    found = {_as_written(arm) for arm in arms if arm is not None}
    return {type_of(value)} if not found or "" in found else found


def _as_written(node: ast.expr) -> str:
    """The type of a number, or of a list of them, as far as the expression says."""
    if isinstance(node, ast.List | ast.Tuple) and node.elts:
        kinds = {_as_written(each) for each in node.elts}
        return "float32" if "float32" in kinds else kinds.pop() if len(kinds) == 1 else ""
    if isinstance(node, ast.Constant):
        return _of_number(node.value)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return "float32"
    called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
    return {"float": "float32", "int": "int64", "len": "int64"}.get(called, "")


def _of_number(value: object) -> str:
    if isinstance(value, list | tuple):
        kinds = {_of_number(each) for each in value}
        return "float32" if "float32" in kinds else kinds.pop() if len(kinds) == 1 else ""
    if isinstance(value, bool):
        return "bool"
    return "int64" if isinstance(value, int) else "float32" if isinstance(value, float) else ""


_NUMPY_FLOATS = frozenset({
    "zeros", "ones", "empty", "linspace", "logspace", "quantile", "percentile", "rand", "randn", "random", "normal",
    "uniform", "histogram_bin_edges",
})  # fmt: skip


_KEEP_TYPE = frozenset({
    "sum", "mean", "max", "min", "std", "var", "clip", "cumsum", "copy", "reshape", "ravel", "flatten", "maximum",
    "minimum", "sqrt", "log", "log1p", "exp", "abs", "power", "median",
})  # fmt: skip
"""Functions and methods of numpy that give numbers of the type they get."""


def numpy_type(made: Call, value: Value) -> Value:
    """What numpy makes is of 64 bits where nothing else is said; a tensor of it keeps the type."""
    kind = ""
    given = next((k.value for k in made.node.keywords if k.arg == "dtype"), None)
    if made.name == "astype" and isinstance(made.node.func, ast.Attribute) and made.node.args:
        given = made.node.args[0]
    elif not made.full.startswith("numpy."):
        kept = made.name in _KEEP_TYPE and isinstance(made.node.func, ast.Attribute) and given is None
        return value.tagged(*wide(made.receiver)) if kept and wide(made.receiver) else value
    if given is not None:
        kind = "float64" if last_name(given) == "float" else last_name(given)
    elif made.name in _NUMPY_FLOATS or (made.name in _KEEP_TYPE and made.args and wide(*made.args)):
        kind = "float64"
    tags = frozenset(tag for tag in value.tags if not tag.startswith(("dtype:", "cast:")))
    return value._replace(tags=tags | {f"dtype:{kind}"} if kind else tags)


def _counted(frame: Frame, made: Call) -> Value:
    """How often each value occurs in this rank's tensor: as many numbers on every rank, but others."""
    given = [*made.args[:1], made.receiver]
    if any("agreed" in value.tags for value in given):
        return UNKNOWN
    origin = Origin("data", f"{made.name}() counts what this rank has", *frame.at(made.node))
    return Value(union(*(value.taint for value in given), frozenset({origin})))


def _local_type(made: Call) -> Taint:
    """The type of a tensor as an argument, where it differs between ranks: `dtype = half if rank == 0 else float`."""
    given = [(last_name(node), value) for node, value in zip(made.node.args, made.args, strict=False)]
    given += [("dtype", value) for name, value in made.keywords.items() if name == "dtype"]
    types = (value.taint for name, value in given if "dtype" in name or TYPE in value.tags)
    return next((taint for taint in types if taint), CLEAN)


def _may_be_type(node: ast.expr) -> bool:
    """`x.dtype`, `dtype`, another tensor: not a device by its name."""
    if isinstance(node, ast.Constant | ast.Call | ast.JoinedStr):
        return False
    name = last_name(node).lower()
    return not any(word in name for word in ("device", "rank", "gpu", "cuda", "cpu"))


def _dtype(made: Call) -> str:
    """The type that a call makes; empty where it follows another tensor or the number given."""
    for keyword in made.node.keywords:
        if keyword.arg == "dtype":
            name = _ALIASES.get(last_name(keyword.value), last_name(keyword.value))
            return name if name in DTYPES else ""
    if any(keyword.arg is None for keyword in made.node.keywords):
        return ""  # `zeros(n, **options)`
    if made.name.endswith("_like"):
        return type_of(made.args[0])
    if made.name.startswith("new_"):
        return type_of(made.receiver)
    if made.full == "torch.as_tensor":
        return type_of(made.args[0])
    if made.name == "full":
        return ""
    fractions = any(isinstance(n, ast.Constant) and isinstance(n.value, float) for n in made.node.args)
    return "int64" if made.name in _INTEGERS and not fractions else "float32"
