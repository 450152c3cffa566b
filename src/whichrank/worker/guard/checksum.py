"""Checksums of tensors on their own device: the raw bits as integers, weighted by position, modulo 2**64.

Every weight is odd, so one flipped bit always changes the sum, and so does any exchange of unlike values. Many pieces
are summed in a handful of operations: the time of small tensors is the time of starting kernels, and every other
operation has the device load code that the job may not need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

PIECE_BYTES = 1 << 20
"""The most of one tensor that is summed as one piece; the table of weights is as long."""
_WORDS = PIECE_BYTES // 8
_ROWS = (_WORDS, 1024, 64)
"""Words of a row: pieces are laid out in rows of the widest that they fill, with zeros behind."""
_MULTIPLIER, _MASK = 6364136223846793005, (1 << 64) - 1
_weights: dict[Any, Any] = {}


def weights(device: Any) -> Any:
    """Odd numbers in no order, the same in every process. No generator of torch is touched."""
    found = _weights.get(device)
    if found is None:
        index = torch.arange(1, _WORDS + 1, dtype=torch.int64, device="cpu")  # whatever the job's default is
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


def sums(pieces: Sequence[Any]) -> tuple[Any, Callable[[list[int]], list[int]]]:
    """Checksums of pieces (flat tensors of one device, none longer than PIECE_BYTES): sums of their rows as one int64
    tensor, and what makes one number for each piece of them once they are on the host."""
    table = weights(pieces[0].device)
    groups: dict[int, list[tuple[int, Any]]] = {}
    for index, piece in enumerate(pieces):
        bits = words(piece)
        # A view of narrower words may have more of them than there are weights.
        bits = bits if bits.numel() <= _WORDS else _folded(bits)
        width = next((row for row in _ROWS if bits.numel() >= row), _ROWS[-1])
        groups.setdefault(width, []).append((index, bits if bits.dtype is torch.int64 else bits.to(torch.int64)))
    rows = [_row_sums([bits for _, bits in held], width, table) for width, held in groups.items()]
    counts = [(index, -(-bits.numel() // width)) for width, held in groups.items() for index, bits in held]

    def join(values: list[int]) -> list[int]:
        totals, at = [0] * len(counts), 0
        for index, count in counts:
            totals[index] = sum(values[at : at + count]) & _MASK
            at += count
        return totals

    return rows[0] if len(rows) == 1 else torch.cat(rows), join


def one(piece: Any) -> Any:
    """The checksum of one short piece, on its device."""
    bits = words(piece)
    return (bits * weights(piece.device)[: bits.numel()]).sum(dtype=torch.int64)


def _row_sums(parts: list[Any], width: int, table: Any) -> Any:
    """Copies, a product, a sum: what a GPU has code for already. No index comes from the host."""
    if len(parts) == 1 and parts[0].numel() == width:
        return (parts[0] * table[:width]).sum(dtype=torch.int64).view(1)
    if width == _WORDS:
        return torch.cat(parts).view(-1, width).mul_(table).sum(1)
    padding = table.new_zeros(width - 1)
    bits, weighted = [], []
    for part in parts:
        missing = -part.numel() % width
        bits += [part, padding[:missing]] if missing else [part]
        weighted.append(table[: part.numel() + missing])
    return torch.cat(bits).mul_(torch.cat(weighted)).view(-1, width).sum(1)


def _folded(bits: Any) -> Any:
    """Odd lengths of narrow types, packed into 64 bits with zeros behind."""
    missing = -bits.numel() * bits.element_size() % 8
    raw = bits.view(torch.uint8)
    return torch.cat([raw, raw.new_zeros(missing)]).view(torch.int64)


def short(total: int) -> str:
    """Eight hexadecimal digits of a sum."""
    total &= _MASK
    return f"{(total ^ total >> 32) & 0xFFFFFFFF:08x}"
