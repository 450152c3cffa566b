"""Types of tensors, of those in a list too, and what a collective needs them to be."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping

from whichrank.source.code.values import CLEAN, Taint, Value, union

RAGGED = "ragged"
"""Marks a list of tensors that are longer on some ranks than on others."""
OF = "of "
"""Marks a list by the type of its tensors."""
DTYPES = frozenset({
    "float16", "float32", "float64", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool",
})  # fmt: skip
_SAME = {"half": "float16", "float": "float32", "double": "float64", "long": "int64", "int": "int32", "short": "int16"}
RECEIVES: Mapping[str, tuple[tuple[str, int], tuple[str, int]]] = {
    "all_gather": (("tensor_list", 0), ("tensor", 1)),
    "all_gather_into_tensor": (("output_tensor", 0), ("input_tensor", 1)),
    "all_gather_single": (("output_tensor", 0), ("input_tensor", 1)),
    "_all_gather_base": (("output_tensor", 0), ("input_tensor", 1)),
    "reduce_scatter": (("output", 0), ("input_list", 1)),
    "reduce_scatter_tensor": (("output", 0), ("input", 1)),
    "reduce_scatter_single": (("output", 0), ("input", 1)),
    "all_to_all": (("output_tensor_list", 0), ("input_tensor_list", 1)),
    "all_to_all_single": (("output", 0), ("input", 1)),
    "gather": (("gather_list", 1), ("tensor", 0)),
    "scatter": (("tensor", 0), ("scatter_list", 1)),
}
"""Where an operation receives, and what it sends."""


FRACTION = "fraction"
"""Marks a plain number with a decimal point: `loss.item()`."""
_FRACTIONS = re.compile(r"loss|entropy|nll|\.(?:mean|norm|std|var|exp|log|sqrt)\(")


def is_fraction(tensor: ast.expr) -> bool:
    """Whether `tensor.item()` is a number with a decimal point, as far as the expression says."""
    return _FRACTIONS.search(ast.unparse(tensor)) is not None


def becomes_fraction(one: Value, two: Value) -> bool:
    """Whether one is a whole number and the other is not."""
    return (is_whole(one) and FRACTION in two.tags) or (is_whole(two) and FRACTION in one.tags)


def is_whole(value: Value) -> bool:
    return value.ranks is not None and type(value.ranks[0]) is int


def own_kind(numbers: Value) -> Taint:
    """Why some ranks have whole numbers where others have fractions; one fraction makes all of them such."""
    parts = numbers.items or (numbers,)
    if any(_surely_fraction(part) for part in parts):
        return CLEAN
    return union(*(part.cast for part in parts if FRACTION in part.tags))


def _surely_fraction(value: Value) -> bool:
    return (FRACTION in value.tags and not value.cast) or (value.ranks is not None and type(value.ranks[0]) is float)


def type_of(value: Value) -> str:
    """The type of a tensor, or of those in a list; empty where it is not known for certain."""
    named = {tag.removeprefix(OF) for tag in value.tags if tag.removeprefix(OF).startswith(("dtype:", "cast:"))}
    names = {_SAME.get(name, name) for name in (tag.partition(":")[2] for tag in named)}
    return names.pop() if len(names) == 1 and names <= DTYPES else ""


def of_types(values: Iterable[Value]) -> frozenset[str]:
    """The mark of a list whose tensors are all of one type."""
    names = {type_of(value) for value in values}
    return frozenset(f"{OF}dtype:{name}" for name in names) if len(names) == 1 and names != {""} else frozenset()


def wide(*parts: Value) -> frozenset[str]:
    """The mark of what is computed from numbers of 64 bits, and from plain numbers at most."""
    doubles = [bool(part.tags) and type_of(part) == "float64" for part in parts]
    plain = all(double or _is_number(part) for double, part in zip(doubles, parts, strict=True))
    return frozenset({"dtype:float64"}) if any(doubles) and plain else frozenset()


def _is_number(value: Value) -> bool:
    return value.ranks is not None and all(type(each) in {int, float} for each in value.ranks)
