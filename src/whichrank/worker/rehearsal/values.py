"""What a collective gives to each rank: the real values, computed from what every rank brought."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

Bytes = bytes | bytearray | memoryview

_PAIRWISE = {
    "SUM": torch.add,
    "AVG": torch.add,
    "PREMUL_SUM": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}


def results(signatures: Sequence[dict[str, Any]], payloads: Sequence[Bytes]) -> list[Bytes]:
    """The bytes that each member of a group gets, in the order of the group."""
    first, count = signatures[0], len(payloads)
    op, root = first["op"], int(first.get("root") or 0)
    nothing: list[Bytes] = [b""] * count
    if op == "broadcast":
        return [payloads[root]] * count
    if op == "all_reduce":
        return [reduced(payloads, first)] * count
    if op == "all_gather":
        return [b"".join(payloads)] * count
    if op in ("reduce", "gather"):
        nothing[root] = reduced(payloads, first) if op == "reduce" else b"".join(payloads)
        return nothing
    if op == "scatter":
        return cut(payloads[root], [s["out_bytes"] for s in signatures])
    if op == "reduce_scatter":
        return cut(reduced(payloads, first), [s["out_bytes"] for s in signatures])
    if op == "all_to_all":
        rows = [cut(data, s["splits_in"]) for data, s in zip(payloads, signatures, strict=True)]
        return [b"".join(row[member] for row in rows) for member in range(count)]
    return nothing


def reduced(payloads: Sequence[Bytes], signature: dict[str, Any]) -> memoryview:
    dtype, name = getattr(torch, signature["dtype"]), signature["reduce"]
    if not payloads[0]:
        return memoryview(b"")
    total = torch.frombuffer(bytearray(payloads[0]), dtype=dtype)
    combine: Any = _PAIRWISE[name]
    for payload in payloads[1:]:
        combine(total, torch.frombuffer(payload, dtype=dtype), out=total)
    if name == "AVG":
        total = total / len(payloads) if total.is_floating_point() else total // len(payloads)
    return raw(total)


def cut(data: Bytes, sizes: Sequence[int]) -> list[Bytes]:
    view, start, pieces = memoryview(data), 0, []
    for size in sizes:
        pieces.append(view[start : start + size])
        start += size
    return list(pieces)


def raw(tensor: torch.Tensor) -> memoryview:
    """The bytes of a tensor."""
    flat = tensor.detach().contiguous().reshape(-1)
    if flat.numel() == 0:
        return memoryview(b"")
    data: Any = flat.view(torch.uint8).numpy()
    return memoryview(data).cast("B")


def fill(tensor: torch.Tensor, data: bytearray | memoryview) -> None:
    """Write bytes into a tensor, whatever its layout."""
    if tensor.numel():
        with torch.no_grad():
            tensor.detach().copy_(torch.frombuffer(data, dtype=tensor.dtype, count=tensor.numel()).view(tensor.shape))
