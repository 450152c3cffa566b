"""A collective's arguments, as the profiler notes them beside kernels, `record_param_comms` and annotations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from whichrank.facts.collective_names import operation
from whichrank.records.profiles.trace import Collective

# torch's scalar types by the names that the profiler uses (c10/core/ScalarType.h), and C's in annotations.
SIZES = {
    "byte": 1, "char": 1, "bool": 1, "int8": 1, "uint8": 1, "unsigned char": 1, "signed char": 1, "float8_e4m3fn": 1,
    "float8_e5m2": 1, "short": 2, "half": 2, "bfloat16": 2, "c10::half": 2, "c10::bfloat16": 2, "float16": 2,
    "int": 4, "float": 4, "int32": 4, "float32": 4, "long": 8, "double": 8, "long int": 8, "int64": 8, "float64": 8,
    "complexfloat": 8, "complexdouble": 16,
}  # fmt: skip
_RANKS = re.compile(r"\d+")


class Arguments(NamedTuple):
    """What is used of an event's arguments; nothing is known of their types but that of `collective`."""

    collective: str | None = None
    sent: Any = None
    received: Any = None
    dtype: Any = None
    size: Any = None
    group: Any = None
    desc: Any = None
    ranks: Any = None
    seq: Any = None
    shapes: Any = None
    types: Any = None


_KEYS = (
    "Collective name", "In msg nelems", "Out msg nelems", "dtype", "Group size", "Process Group Name",
    "Process Group Description", "Process Group Ranks", "Seq", "Input Dims", "Input type",
)  # fmt: skip


def noted(args: Mapping[str, Any]) -> Arguments:
    """The arguments of an event, by the profiler's own keys."""
    return Arguments(*map(args.get, _KEYS))


def described(name: str, args: Arguments) -> Collective:
    """What the arguments say of the collective that this event is about."""
    op = operation(args.collective or "") or operation(name)
    size = SIZES.get(str(args.dtype).lower()) if args.dtype is not None else None
    sent, received = _bytes(args.sent, size), _bytes(args.received, size)
    if sent is None and args.shapes:
        sent = _first_tensor(args.shapes, args.types)
    return Collective(
        op=op,
        sent=sent,
        received=received,
        group=_text(args.group),
        desc=_text(args.desc),
        size=_count(args.size),
        ranks=_ranks(args.ranks),
        seq=_count(args.seq),
        dtype=_text(args.dtype),
    )


def _bytes(elements: Any, size: int | None) -> int | None:
    count = _count(elements)
    return count * size if count is not None and size is not None else None


def _count(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) < 19:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62 else None


def _text(value: Any) -> str:
    return value[:120] if isinstance(value, str) else "" if value is None else str(value)[:120]


def _ranks(value: Any) -> tuple[int, ...] | None:
    """Kineto writes at most thirty ranks and then an ellipsis; such a list names nobody for certain."""
    if isinstance(value, list):
        value = str(value)
    if not isinstance(value, str) or "..." in value:
        return None
    found = tuple(int(n) for n in _RANKS.findall(value)[: 1 << 16] if len(n) < 10)
    return found or None


def _first_tensor(shapes: Any, types: Any) -> int | None:
    """Bytes of the tensors that an annotation such as `nccl:all_reduce` lists."""
    kinds_ = types or []
    total = 0
    for index, shape in enumerate(shapes if isinstance(shapes, list) else []):
        tensors = shape if isinstance(shape, list) else []
        kind = str(kinds_[index] if isinstance(kinds_, list) and index < len(kinds_) else "")
        size = SIZES.get(kind.lower().replace("tensorlist", "").strip(), 0 if "Scalar" in kind else 4)
        if not tensors and kind.lower() in SIZES:  # a tensor of no dimensions, such as a loss
            total += size
        for dimensions in tensors if tensors and isinstance(tensors[0], list) else [tensors] if tensors else []:
            count = 1
            for n in dimensions:
                count *= n if isinstance(n, int) and 0 <= n < 1 << 40 else 0
            total += count * size
    return total if 0 < total < 1 << 62 else None
