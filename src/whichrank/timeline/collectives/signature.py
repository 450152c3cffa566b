"""What must agree between the ranks of one collective, and what may differ.

NCCL compares nothing across ranks; these are the rules of the operations themselves
(torch.distributed's documentation of each collective).
"""

from __future__ import annotations

from math import prod
from typing import Literal

from msgspec import Struct

from whichrank.records.dump import Call

# Sizes that legitimately differ between ranks: all-to-all may be uneven; only the root of a
# gather has outputs and only the root of a scatter has inputs.
_UNEVEN = ("all_to_all", "alltoall")
_OUTPUT_AT_ROOT = ("gather", "reduce")
_INPUT_AT_ROOT = ("scatter",)
# Finishing on one member proves that every member has joined; a broadcast or a reduce proves no such thing.
_SYNCHRONISING = (
    "all_reduce",
    "allreduce",
    "all_gather",
    "allgather",
    "reduce_scatter",
    "barrier",
    "all_to_all",
    "alltoall",
)


class Signature(Struct, frozen=True):
    """The part of a call that every member of the group has to repeat."""

    op: str
    inputs: tuple[int, ...] | None
    outputs: tuple[int, ...] | None
    dtypes: tuple[str, ...]
    root: int | None = None
    reduce: str | None = None

    def __str__(self) -> str:
        sizes = self.inputs if self.inputs is not None else self.outputs
        numel = f"{sum(sizes):,} element{'s' if sum(sizes) != 1 else ''}" if sizes else ""
        dtype = self.dtypes[0] if self.dtypes else ""
        root = f"root {self.root}" if self.root is not None else ""
        inner = ", ".join(part for part in (numel, dtype, self.reduce or "", root) if part)
        return f"{self.op}({inner})" if inner else self.op


def numels(sizes: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """Element counts; an empty shape is one element."""
    return tuple(prod(shape) for shape in sizes)


def bare_name(op: str) -> str:
    """The operation without decoration: `_all_gather_base` is `all_gather`, `send 0->1` is `send`."""
    name = op.split(" ", 1)[0].lower().lstrip("_")
    for tail in ("_base", "_into_tensor", "_tensor", "_single", "_out"):
        name = name.removesuffix(tail)
    return name


def signature(call: Call) -> Signature:
    """The agreement that this call needs."""
    name = bare_name(call.op)
    inputs: tuple[int, ...] | None = numels(call.input_sizes)
    outputs: tuple[int, ...] | None = numels(call.output_sizes)
    dtypes = call.input_dtypes or call.output_dtypes
    if is_uneven(name):
        inputs = outputs = None
    elif name in _OUTPUT_AT_ROOT:
        outputs = None
    elif name in _INPUT_AT_ROOT:
        inputs, outputs, dtypes = None, *_received(call)
    return Signature(name, inputs, outputs, tuple(sorted(set(dtypes))), call.root, call.reduce)


def _received(call: Call) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """What a member of a scatter gets: one tensor. NCCL's recorder has it among the inputs, Gloo's among the outputs;
    the tensors of the root are on the other side, where other members have an empty one of no type."""
    inputs, outputs = numels(call.input_sizes), numels(call.output_sizes)
    if len(inputs) == 1 and inputs[0] > 0 and (len(outputs) != 1 or outputs[0] == 0):
        return inputs, call.input_dtypes
    return outputs, call.output_dtypes or call.input_dtypes


def proves_all_joined(name: str) -> bool:
    """Whether one member's completion of this operation shows that all members joined it."""
    return name.startswith(_SYNCHRONISING)


def is_uneven(name: str) -> bool:
    """Whether its members may bring different sizes."""
    return name.startswith(_UNEVEN)


def has_root(name: str) -> bool:
    """Whether one member of this operation is the root."""
    return name in ("broadcast", "reduce", "gather", "scatter")


def is_barrier(call: Call) -> bool:
    """A barrier, or what a barrier is recorded as."""
    return "barrier" in call.op


Aspect = Literal["op", "size", "dtype", "root", "reduce-op", ""]


def differs_in(one: Signature, other: Signature) -> Aspect:
    """The first aspect in which two calls disagree: "op", "size", "dtype", "root", "reduce-op" or ""."""
    if one.op != other.op:
        return "op"
    if (one.inputs, one.outputs) != (other.inputs, other.outputs):
        return "size"
    if one.dtypes != other.dtypes:
        return "dtype"
    if one.root != other.root:
        return "root"
    return "reduce-op" if one.reduce != other.reduce else ""
