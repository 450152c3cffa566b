"""Gradients of this rank before they are reduced: the norm of each parameter's, in one pass.

DistributedDataParallel puts reduced gradients in place at the end of the backward pass, in a callback of autograd. A
callback that was queued earlier runs earlier, and still sees the local ones. Where gradients are views of buckets they
are reduced in place while the pass goes on: there each is looked at in the moment in which it is complete. Sharded
gradients are seen on their way into reduce_scatter.
"""

from __future__ import annotations

from typing import Any

import torch

MOST_SHARDED = 512
"""Inputs of reduce_scatter that are looked at in one step."""


class Gradients:
    """The local gradients of one optimizer's parameters."""

    def __init__(self, parameters: list[Any], ddp: list[Any]) -> None:
        self.parameters = parameters
        mine = {id(parameter) for parameter in parameters}
        self.ddp = [m for m in ddp if any(id(p) in mine for p in m.module.parameters())]
        self.views = any(getattr(m, "gradient_as_bucket_view", False) for m in self.ddp)
        self.sharded = any(hasattr(p, "device_mesh") for p in parameters)
        self.norms: Any = None
        """Of all parameters, in order; what has no gradient counts as zero."""
        self.pending = False
        self._single: dict[int, Any] = {}
        if self.views:
            for index, parameter in enumerate(parameters):
                if parameter.requires_grad:
                    parameter.register_post_accumulate_grad_hook(self._keep(index))

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
        """Norms of the gradients as they are now."""
        self.pending = False
        held = [(i, p.grad) for i, p in enumerate(self.parameters) if p.grad is not None and not p.grad.is_sparse]
        self._stack(held, norms_of([gradient for _, gradient in held]))

    def _keep(self, index: int) -> Any:
        def hook(parameter: Any) -> None:
            if self.reduces and parameter.grad is not None and not parameter.grad.is_sparse:
                self._single[index] = torch.linalg.vector_norm(parameter.grad.detach(), dtype=torch.float32)

        return hook

    def _gather(self) -> None:
        kept, self._single = self._single, {}
        if kept:
            self._stack(list(kept.items()), list(kept.values()))

    def _stack(self, held: list[tuple[int, Any]], norms: list[Any]) -> None:
        if not held:
            return
        stacked = torch.stack([norm if norm.device == norms[0].device else norm.to(norms[0].device) for norm in norms])
        if len(held) == len(self.parameters):
            self.norms = stacked
            return
        full = stacked.new_zeros(len(self.parameters))
        full[torch.tensor([index for index, _ in held], device=full.device)] = stacked
        self.norms = full

    def take(self) -> Any:
        norms, self.norms = self.norms, None
        return norms


def norms_of(gradients: list[Any]) -> list[Any]:
    if not gradients:
        return []
    with torch.no_grad():
        return list(torch._foreach_norm([g.detach() for g in gradients], 2, torch.float32))  # noqa: SLF001


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
