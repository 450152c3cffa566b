"""What a batch is known by: checksums of its first samples, and whether all of its numbers are finite."""

from __future__ import annotations

from typing import Any

import torch

from whichrank.worker.guard import checksum

SAMPLES = 4
SAMPLE_BYTES = 8192
"""Of one sample; enough to tell images and sentences apart."""
LOOKED_AT = 1 << 20
"""Numbers of a batch that are looked at on a CPU; more would be felt."""


class Batch:
    """The first batch tensor that went into the model since the last step."""

    def __init__(self) -> None:
        self.rows: Any = None
        self.total: Any = None
        self.inputs: tuple[Any, ...] = ()

    def seen(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A forward pass begins."""
        found = list(tensors_in((args, kwargs), 3))
        self.inputs = tuple(found)
        for tensor in found:
            if tensor.dim() < 1 or not tensor.numel() or tensor.layout is not torch.strided:
                continue
            line = checksum.flat(tensor)
            if self.rows is None:
                first = tensor[:SAMPLES].detach().contiguous() if line is None else tensor  # as `tokens[:, :-1]` is
                self.rows = _rows(first, first.view(-1) if line is None else line)
            if self.total is None and tensor.is_floating_point():
                numbers = tensor.detach() if line is None else line
                on_cpu = numbers.device.type == "cpu" and line is not None
                self.total = (numbers[:LOOKED_AT] if on_cpu else numbers).sum(dtype=torch.float32)

    def take(self) -> tuple[Any, Any]:
        taken = self.rows, self.total
        self.rows = self.total = None
        return taken


def _rows(tensor: Any, line: Any) -> Any:
    """Checksums of the first samples; one operation for all of them where their bits come in whole words."""
    count = min(SAMPLES, tensor.shape[0])
    length = line.numel() // tensor.shape[0]
    most = max(1, min(length, SAMPLE_BYTES // line.element_size()))
    size = most * line.element_size()
    if size % 8 == 0 and (length * line.element_size()) % 8 == 0 and line.data_ptr() % 8 == 0:
        rows = line[: count * length].view(count, length)[:, :most]
        bits = rows.view(torch.int64)
        return (bits * checksum.weights(line.device)[: bits.shape[1]]).sum(1)
    return torch.stack([checksum.one(line[row * length : row * length + most]) for row in range(count)])


def tensors_in(value: Any, depth: int) -> Any:
    """Tensors in nested containers, in order."""
    if isinstance(value, torch.Tensor):
        if not hasattr(value, "device_mesh"):
            yield value
    elif depth and isinstance(value, (list, tuple)):
        for each in value[:8]:
            yield from tensors_in(each, depth - 1)
    elif depth and isinstance(value, dict):
        for each in list(value.values())[:8]:
            yield from tensors_in(each, depth - 1)
