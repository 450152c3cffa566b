"""Gradients of this rank before they are reduced: the sum of squares of each parameter's.

DistributedDataParallel puts reduced gradients in place at the end of the backward pass, in a callback of autograd. A
callback that was queued earlier runs earlier, and still sees the local ones. Where gradients are views of buckets they
are reduced in place while the pass goes on: there each is looked at in the moment in which it is complete. Sharded
gradients are seen on their way into reduce_scatter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from whichrank.worker.guard import checksum

MOST_SHARDED = 512
"""Inputs of reduce_scatter that are looked at in one step."""
_DOTTED = (torch.float32, torch.bfloat16, torch.float64)
"""A dot product has the type of its factors: a half would overflow at 65,504."""
_MOST_OF_A_DOT = (1 << 31) - 1


class Gradients:
    """The local gradients of one optimizer's parameters."""

    def __init__(self, parameters: list[Any], ddp: list[Any], look: Callable[..., None]) -> None:
        self.parameters = parameters
        mine = {id(parameter) for parameter in parameters}
        self.ddp = [m for m in ddp if any(id(p) in mine for p in m.module.parameters())]
        self.views = any(getattr(m, "gradient_as_bucket_view", False) for m in self.ddp)
        self.sharded = any(hasattr(p, "device_mesh") for p in parameters)
        self.squares: Any = None
        """Of all parameters, in order; what has no gradient counts as zero. `roots` makes norms of them."""
        self.pending = False
        self._single: dict[int, Any] = {}
        if self.views:
            for index, parameter in enumerate(parameters):
                if parameter.requires_grad:
                    parameter.register_post_accumulate_grad_hook(self._keep(index, look))

    @property
    def reduces(self) -> bool:
        """Whether this backward pass ends with a reduction; not while gradients are accumulated."""
        return all(m.require_backward_grad_sync for m in self.ddp)

    def passed(self) -> None:
        """The backward pass is through, its reductions are not in place yet."""
        if self.sharded:
            return
        if self.views:
            self._gather()
        elif self.ddp:
            if self.reduces:
                self.look()
        else:
            self.pending = True

    def look(self) -> None:
        """The gradients as they are now."""
        self.pending = False
        held = [(i, p.grad) for i, p in enumerate(self.parameters) if p.grad is not None and not p.grad.is_sparse]
        self._stack(held, squares_of([gradient for _, gradient in held]))

    def _keep(self, index: int, look: Callable[..., None]) -> Any:
        def keep(gradient: Any) -> None:
            self._single[index] = square_of(gradient)

        def hook(parameter: Any) -> None:
            if self.reduces and parameter.grad is not None and not parameter.grad.is_sparse:
                look(keep, parameter.grad)

        return hook

    def _gather(self) -> None:
        kept, self._single = self._single, {}
        if kept:
            self._stack(list(kept.items()), list(kept.values()))

    def _stack(self, held: list[tuple[int, Any]], squares: list[Any]) -> None:
        if not held:
            return
        device, found = squares[0].device, dict(zip((index for index, _ in held), squares))  # noqa: B905
        nothing = squares[0].new_zeros(())
        full = [found.get(index, nothing) for index in range(len(self.parameters))]
        self.squares = torch.stack([each if each.device == device else each.to(device) for each in full])

    def take(self) -> Any:
        squares, self.squares = self.squares, None
        return squares


def square_of(gradient: Any) -> Any:
    """The sum of squares, as a number on the device of the gradient.

    CUDA loads code when it is first used: 1.4 MB for a dot product, 7 MB for norms, 31 MB for a root on the device.
    """
    line = checksum.flat(gradient)
    if line is not None and line.dtype in _DOTTED and line.numel() <= _MOST_OF_A_DOT:
        return torch.dot(line, line)
    norm = torch.linalg.vector_norm(gradient.detach(), dtype=torch.float32)
    return norm * norm


def squares_of(gradients: list[Any]) -> list[Any]:
    if not gradients:
        return []
    with torch.no_grad():
        return [square_of(gradient) for gradient in gradients]


def roots(squares: Any) -> list[float]:
    """Norms, on the host."""
    return [value**0.5 for value in squares.reshape(-1).tolist()]


def coded(norms: list[float]) -> str:
    """Two hexadecimal digits for each: quarters of an octave; 00 for zero, fe for infinite, ff for not a number."""
    from math import isinf, isnan, log2

    digits = []
    for norm in norms:
        if isnan(norm):
            code = 255
        elif isinf(norm):
            code = 254
        else:
            code = 0 if norm <= 0 else max(1, min(253, round(4 * log2(norm)) + 128))
        digits.append(f"{code:02x}")
    return "".join(digits)
