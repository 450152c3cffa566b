"""Checksums of tensors on their own device: the raw bits as integers, weighted by position, modulo 2**64.

Every weight is odd, so one flipped bit always changes the sum, and so does any exchange of unlike values. Many pieces
are summed in a handful of operations: the time of small tensors is the time of starting kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

PIECE_BYTES = 1 << 20
"""The most of one tensor that is summed as one piece; the table of weights is as long."""
_WORDS = PIECE_BYTES // 8
_MULTIPLIER, _MASK = 6364136223846793005, (1 << 64) - 1
_weights: dict[Any, Any] = {}


def weights(device: Any) -> Any:
    """Odd numbers in no order, the same in every process. No generator of torch is touched."""
    found = _weights.get(device)
    if found is None:
        index = torch.arange(1, _WORDS + 1, dtype=torch.int64)
        mixed = (index * _MULTIPLIER) ^ (index << 29)
        mixed = (mixed ^ (mixed >> 31)) * 3935559000370003845
        found = _weights[device] = ((mixed ^ (mixed >> 29)) | 1).to(device)
    return found


def words(tensor: Any) -> Any:
    """The bits of a contiguous, flat piece as integers, without a copy: 64 bits at a time where that goes."""
    size = tensor.element_size()
    if (tensor.numel() * size) % 8 == 0 and (tensor.storage_offset() * size) % 8 == 0 and tensor.data_ptr() % 8 == 0:
        return tensor.view(torch.int64)
    return tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size])


def flat(tensor: Any) -> Any | None:
    """The memory of a tensor as one line; None where that needs a copy or is not plain memory."""
    plain = tensor.detach()
    if plain.layout is not torch.strided or plain.device.type == "meta":
        return None
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    if plain.is_contiguous():
        return plain.view(-1)
    # Channels last and the like: dense in another order, the same order on every replica.
    order = sorted(range(plain.dim()), key=lambda d: (-plain.stride(d), d))
    turned = plain.permute(order)
    return turned.view(-1) if turned.is_contiguous() else None


def sums(pieces: Sequence[Any]) -> Any:
    """One checksum per piece (flat tensors of one device, none longer than PIECE_BYTES), as one int64 tensor."""
    table = weights(pieces[0].device)
    parts, lengths = [], []
    for piece in pieces:
        bits = words(piece)
        # A view of narrower words has more of them than there are weights: half a piece at a time is summed up.
        parts.append(bits if bits.numel() <= _WORDS else _folded(bits))
        lengths.append(parts[-1].numel())
    if len(parts) == 1:
        return (parts[0] * table[: lengths[0]]).sum(dtype=torch.int64).view(1)
    bits = torch.cat([part if part.dtype is torch.int64 else part.to(torch.int64) for part in parts])
    weighted = bits.mul_(torch.cat([table[:length] for length in lengths]))
    if sum(lengths) > 4096 * len(lengths):  # few and long: a sum each is faster than running sums
        return torch.stack([part.sum() for part in weighted.split(lengths)])
    running = weighted.cumsum(0)
    ends, last = [], -1
    for length in lengths:
        last += length
        ends.append(last)
    totals = running[ends]
    totals[1:] -= running[ends[:-1]]
    return totals


def _folded(bits: Any) -> Any:
    """Odd lengths of narrow types, packed into 64 bits with zeros behind."""
    missing = -bits.numel() * bits.element_size() % 8
    raw = bits.view(torch.uint8)
    return torch.cat([raw, raw.new_zeros(missing)]).view(torch.int64)


def short(total: int) -> str:
    """Eight hexadecimal digits of a sum."""
    total &= _MASK
    return f"{(total ^ total >> 32) & 0xFFFFFFFF:08x}"
