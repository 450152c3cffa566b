"""One micro-batch computed a second time: with the same inputs, random state and output gradients.

Another result means that the first or the second was computed wrongly, or that a kernel is not deterministic. The same
result means that the data were unusual, or that the device is wrong each time. Another device decides.

Nothing of the job is changed: buffers and random state are put back, gradients are not accumulated, and a collective
inside of the forward pass ends the replay before it is issued.
"""

from __future__ import annotations

from contextlib import ExitStack
from math import isfinite
from typing import TYPE_CHECKING, Any

import torch

from whichrank.worker.guard import elsewhere
from whichrank.worker.guard.batches import tensors_in
from whichrank.worker.guard.collectives import RefusedError
from whichrank.worker.guard.gradients import roots, squares_of

if TYPE_CHECKING:
    from whichrank.worker.guard.watched import Watched

SMALL = 1 << 20
"""Bytes of outputs whose gradients are kept at every step; larger ones only when a replay is due."""
CLOSE = 0.02
"""Relative difference of norms below which results are taken for the same: sums in another order differ less."""
LEARNED, REMEMBERED, JUMP = 4, 8, 8.0
"""A gradient that is JUMP times the largest of the last steps is computed again, once LEARNED steps are known."""
FAR = 64.0
"""On a GPU, the jump from which on the same result is checked on another GPU: a process takes some of its memory."""
MOST = 64
"""Micro-batches that are computed twice on suspicion, in the life of a job: what goes on longer is known by then."""
AFTERWARDS = 3
"""Micro-batches that are computed twice after a suspicion: what happens now and then may happen again."""


class Pass:
    """What is needed to repeat the forward and backward pass of one module."""

    def __init__(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.module, self.args, self.kwargs = module, args, kwargs
        self.inputs = [(tensor, tensor._version) for tensor in tensors_in((args, kwargs), 3)]  # noqa: SLF001
        self.random = torch.get_rng_state()
        self.device: Any = next((t.device for t, _ in self.inputs if t.device.type == "cuda"), None)
        self.device_random = torch.cuda.get_rng_state(self.device) if self.device is not None else None
        kind = self.device.type if self.device is not None else "cpu"
        self.autocast = (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
        self.draws = False
        """Whether the pass draws random numbers on the device; known once it was computed again."""
        self.outputs: list[Any] = []
        """Gradients of the outputs, in order; None for those that had none."""
        self.gradients: list[Any] = []
        """Of all parameters, as they were computed again here; None for those that had none."""

    def returned(self, output: Any) -> None:
        """The forward pass is through: keep the gradients of its outputs as they come."""
        found = [tensor for tensor in tensors_in(output, 3) if tensor.requires_grad]
        self.outputs = [None] * len(found)
        for index, tensor in enumerate(found):
            tensor.register_hook(self._keep(index))

    def _keep(self, index: int) -> Any:
        def hook(gradient: Any) -> None:
            self.outputs[index] = gradient.detach()

        return hook

    @property
    def whole(self) -> bool:
        """Whether inputs are as they were and the gradients of outputs are known."""
        same = all(tensor._version == version for tensor, version in self.inputs)  # noqa: SLF001
        return same and bool(self.outputs) and any(gradient is not None for gradient in self.outputs)

    def again(self, parameters: list[Any], guard: Any, target: Any = None) -> list[float] | None:
        """The norms of the local gradients, computed anew, on another device if one is given; None where that can't be
        done."""
        inner = getattr(self.module, "module", self.module)
        wanted = [p for p in parameters if p.requires_grad]
        buffers = [(buffer, buffer.detach().clone()) for buffer in inner.buffers()]
        with ExitStack() as stack:
            stack.callback(_put_back, buffers)
            stack.callback(torch.set_rng_state, torch.get_rng_state())
            torch.set_rng_state(self.random)
            device = self.device if target is None else target
            if self.device_random is not None and device.type == "cuda":
                stack.callback(torch.cuda.set_rng_state, torch.cuda.get_rng_state(device), device)
                torch.cuda.set_rng_state(self.device_random, device)
            guard.collectives.refused = True
            stack.callback(setattr, guard.collectives, "refused", False)
            try:
                if target is not None:
                    return self._there(inner, wanted, parameters, target)
                with torch.enable_grad(), torch.autocast(*self.autocast):
                    output = inner(*self.args, **self.kwargs)
                if self.device_random is not None:
                    self.draws = not torch.equal(self.device_random, torch.cuda.get_rng_state(device))
                found = [tensor for tensor in tensors_in(output, 3) if tensor.requires_grad]
                pairs = [(t, g) for t, g in zip(found, self.outputs) if g is not None]  # noqa: B905
                gradients = torch.autograd.grad([t for t, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True)
            except RefusedError:
                return None
        self.gradients = _in_order(parameters, wanted, gradients)
        return _norms(self.gradients)

    def _there(self, inner: Any, wanted: list[Any], parameters: list[Any], target: Any) -> list[float]:
        """With copies of parameters, buffers and inputs; the module itself stays where it is."""
        copies = {id(t): t.detach().to(target).requires_grad_(t.requires_grad) for t in inner.parameters()}
        state = {name: copies[id(t)] for name, t in inner.named_parameters(remove_duplicate=False)}
        state |= {name: t.detach().to(target, copy=True) for name, t in inner.named_buffers()}
        args, kwargs = _moved((self.args, self.kwargs), target)
        _, dtype, enabled = self.autocast
        with torch.enable_grad(), torch.autocast(target.type, dtype, enabled):
            output = torch.func.functional_call(inner, state, args, kwargs)
        found = [tensor for tensor in tensors_in(output, 3) if tensor.requires_grad]
        pairs = [(t, g.to(target)) for t, g in zip(found, self.outputs) if g is not None]  # noqa: B905
        mine = [copies[id(p)] for p in wanted]
        gradients = torch.autograd.grad([t for t, _ in pairs], mine, [g for _, g in pairs], allow_unused=True)
        return _norms(_in_order(parameters, wanted, gradients))


def _in_order(parameters: list[Any], wanted: list[Any], gradients: Any) -> list[Any]:
    by_id = {id(p): gradient for p, gradient in zip(wanted, gradients)}  # noqa: B905
    return [by_id.get(id(p)) for p in parameters]


def _norms(held: list[Any]) -> list[float]:
    norms = iter(roots(torch.stack(squares_of([g for g in held if g is not None]))))
    return [next(norms) if gradient is not None else 0.0 for gradient in held]


def extent(gradient: Any) -> tuple[float, int, int]:
    """The largest finite value without its sign, how many are not finite, and how many there are."""
    if gradient is None or not gradient.numel():
        return 0.0, 0, 0
    line = gradient.detach().reshape(-1).float()
    bad = line.numel() - int(torch.isfinite(line).sum())
    return float(torch.nan_to_num(line, 0.0, 0.0, 0.0).abs().max()), bad, line.numel()


def _moved(value: Any, target: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().to(target)
    if type(value) in (list, tuple):
        return type(value)(_moved(each, target) for each in value)
    return {key: _moved(each, target) for key, each in value.items()} if type(value) is dict else value


def _put_back(buffers: list[tuple[Any, Any]]) -> None:
    with torch.no_grad():
        for buffer, before in buffers:
            buffer.copy_(before)


def _only_once(module: Any) -> bool:
    """Whether it can't be computed once more: compiled (also in place), or with collectives inside."""
    compiled = getattr(module, "_compiled_call_impl", None) is not None
    return compiled or type(module).__name__ in ("OptimizedModule", "SyncBatchNorm")


class Replays:
    """When one optimizer's micro-batches are computed twice."""

    def __init__(self, watched: Watched, every: int = 0) -> None:
        self.watched, self.every = watched, every
        self.due = 0
        # Without an optimizer's step there is no moment between a gradient and the update that it makes.
        self.possible = (
            hasattr(watched.optimizer, "step")
            and not watched.gradients.sharded
            and not any(_only_once(module) for root in watched.roots for module in root.modules())
        )
        self.last: Pass | None = None
        self._passes = 0
        """Forward passes with gradients since the last step: of several, the gradients are the sum."""
        self._usual: list[list[float]] = []
        self._replayed = 0
        self._far = False
        """Whether the last suspicion was a strong one."""

    def forward(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._passes += 1
        self.last = Pass(module, args, kwargs) if self.possible and self._passes == 1 else None

    def returned(self, output: Any) -> None:
        if self.last is None:
            return
        size = sum(t.numel() * t.element_size() for t in tensors_in(output, 3))
        if size <= SMALL or self.due:
            self.last.returned(output)
        else:
            self.last = None

    def before_step(self, step: int, squares: Any) -> None:
        """The gradients are complete: is something to be computed again?"""
        last, self.last, self._passes = self.last, None, 0
        if last is None or squares is None or (squares.device.type != "cpu" and not self.due and not self._turn(step)):
            return
        first = roots(squares)
        strange = squares.device.type == "cpu" and self._strange(first)
        if not (strange or self.due or self._turn(step)) or not last.whole:
            return
        self.due = AFTERWARDS if strange else max(0, self.due - 1)
        second = last.again(self.watched.parameters, self.watched.guard)
        self._replayed += 1
        self.possible = second is not None and (bool(self.every) or self._replayed < MOST)
        if second is None:
            return
        same = _close(first, second)
        third, where = elsewhere.NOWHERE
        if not same or squares.device.type == "cpu" or self._turn(step) or self._far:
            third, where = elsewhere.run(last, self.watched.parameters, self.watched.guard)
        means = elsewhere.meaning(first, second, third, _close)
        self.last, self._passes = None, 0  # the replay went through the same hooks
        if means == elsewhere.DATA:
            self._learn(first)  # gradients are that large now
        # The one nearest to the loss that is not finite, or the one that differs most, or the largest.
        worst = max(range(len(first)), key=lambda i: (
            (1, float(i)) if not isfinite(first[i]) else (0, _distance(first[i], second[i])), first[i]
        ))  # fmt: skip
        largest, bad, count = extent(last.gradients[worst])
        module = self.watched.names.get(id(self.watched.parameters[worst]), "")
        self.watched.guard.later(
            {
                "t": "replay", "o": self.watched.index, "s": step, "same": same, "exact": first == second,
                "first": f"{first[worst]:.6g}", "second": f"{second[worst]:.6g}", "module": module,
                "why": "suspicion" if strange else "turn", "means": means, "on": where,
                "largest": f"{largest:.6g}", "bad": bad, "of": count,
            }
        )  # fmt: skip

    def heard(self, norms: list[float]) -> None:
        """What came from a device a while ago."""
        if self.possible and self._strange(norms):
            self.due = AFTERWARDS

    def _turn(self, step: int) -> bool:
        return bool(self.every) and step % self.every == 0

    def _strange(self, norms: list[float]) -> bool:
        """Whether a gradient is not finite, or far larger than this rank has seen it lately. A replay costs little."""
        if not all(map(isfinite, norms)):
            self._far = True
            return True
        most = list(map(max, zip(*self._usual))) if len(self._usual) >= LEARNED else []  # noqa: B905
        jumps = [norm / usual for norm, usual in zip(norms, most) if usual > 0]  # noqa: B905
        strange, self._far = max(jumps, default=0.0) > JUMP, max(jumps, default=0.0) > FAR
        if not strange:
            self._learn(norms)
        return strange

    def _learn(self, norms: list[float]) -> None:
        if all(map(isfinite, norms)):
            self._usual = [*self._usual[1 - REMEMBERED :], norms]


def _close(one: list[float], other: list[float]) -> bool:
    return all(_distance(a, b) <= CLOSE for a, b in zip(one, other))  # noqa: B905


def _distance(a: float, b: float) -> float:
    if a == b or (a != a and b != b):  # noqa: PLR0124 - two NaN are the same answer
        return 0.0
    difference = abs(a - b) / max(abs(a), abs(b), 1e-12)
    return difference if difference == difference else float("inf")  # noqa: PLR0124
