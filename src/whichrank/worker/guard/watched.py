"""One optimizer and the model behind it: what is measured at each of its steps."""

from __future__ import annotations

import binascii
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from whichrank.worker.guard import checksum, random_state
from whichrank.worker.guard.batches import Batch
from whichrank.worker.guard.gradients import MOST_SHARDED, Gradients, square_of
from whichrank.worker.guard.layout import MOVED, Layout
from whichrank.worker.guard.models import Replicas, clean
from whichrank.worker.guard.replay import Replays

if TYPE_CHECKING:
    from whichrank.worker.guard.session import Guard

AT_ONCE = 4 << 20
"""Bytes that are summed at once where everything is."""
LOSSES = 16
"""Losses that are read together; each alone would be a copy from the device."""
SETTLED = 12
"""Steps after which it is known how long one takes."""


class Watched:
    """Told of the steps of one optimizer."""

    def __init__(
        self, guard: Guard, optimizer: Any, names: dict[int, str], replicas: Replicas, roots: list[Any]
    ) -> None:
        self.guard, self.index, self.optimizer = guard, -1, optimizer
        self.names, self.replicas, self.roots = names, replicas, roots
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.gradients = Gradients(self.parameters, replicas.ddp, self.while_looking)
        self.batch = Batch()
        self.count = self.stepped = 0
        self.joined = self._started = False
        self._on_cpu = all(parameter.device.type == "cpu" for parameter in self.parameters)
        self.layout: Layout | None = None
        self._shape: tuple[int, int] = (-1, -1)
        self._rates: list[Any] = []
        self._others = ""
        self._spent = self._sliced = self._began = 0.0
        self._paces: list[float] = []
        self._look_s: list[float] = []
        self._slice_s: list[float] = []
        self._losses: list[tuple[int, Any]] = []
        self._shards: list[Any] = []
        self.replays = Replays(self, guard.replay_every)
        for root in roots:
            root.register_forward_pre_hook(self._forward, with_kwargs=True)
            root.register_forward_hook(self._returned)

    @property
    def looks(self) -> bool:
        """Whether batch and gradients of the step that is under way are looked at."""
        return self.count % self.guard.plan.gradients == 0

    def while_looking(self, call: Callable[..., None], *arguments: Any) -> None:
        if self.looks and not self.guard.idle:
            self.timed(call, *arguments)

    def timed(self, call: Callable[..., None], *arguments: Any) -> None:
        """Do it, and remember how long it took of the job's thread."""
        began = time.thread_time()
        try:
            with torch.no_grad():
                call(*arguments)
        except Exception as error:  # noqa: BLE001 - the job goes on whatever becomes of its guard
            self.guard.problem(error)
        self._spent += time.thread_time() - began

    def _forward(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.looks and not self.guard.idle and torch.is_grad_enabled() and not torch.compiler.is_compiling():
            self.timed(self.batch.seen, args, kwargs)
            self.timed(self.replays.forward, module, args, kwargs)

    def _returned(self, _module: Any, _args: Any, output: Any) -> None:
        if self.replays.last is not None:
            self.timed(self.replays.returned, output)

    def before_step(self) -> None:
        self.timed(self._complete)
        if hasattr(self.optimizer, "step"):
            # Who shares parameters out after a step, as ZeRO does, has done so when the next one begins.
            self._slice(self.count - 1)

    def _complete(self) -> None:
        """The gradients are."""
        if self.gradients.pending:
            self.gradients.look()
        if not self._started:
            self._started = True
            self.everything("start")
        if not self.gradients.sharded:
            self.replays.before_step(self.count, self.gradients.squares)

    def after_step(self, loss: Any) -> None:
        step, self.count = self.count, self.count + 1
        if self._uneven():
            return
        if loss is not None:
            self._losses.append((step, loss))
        if step % self.guard.plan.gradients == 0:
            self.timed(self._note_gradients, step)
        self._look_s.append(self._spent)
        self._spent = 0.0
        if not hasattr(self.optimizer, "step"):
            self._slice(step)
        if len(self._losses) >= LOSSES or step < SETTLED:
            self._note_losses()
        self._measure()

    def _slice(self, step: int) -> None:
        """The part that is due of what a step has left."""
        if step < 0 or step % self.guard.plan.slices or self.joined:
            return
        before, self._spent = self._spent, 0.0
        self.timed(self._note_slice, step)
        self._sliced, self._spent = self._spent, before

    def _uneven(self) -> bool:
        """Within torch's `Join` ranks step different numbers of times, and replicas differ until it ends.

        From then on the same step of two ranks is not the same moment: nothing of this optimizer is compared."""
        if not self.joined:
            configs = [getattr(root, "_join_config", None) for root in self.roots]
            self.joined = any(getattr(config, "enable", False) for config in configs)
            if self.joined:
                why = "the ranks step different numbers of times (torch's Join): replicas are not compared"
                self.guard.off(why)
        return self.joined

    def flush(self) -> None:
        """At the end of the job: what waits to be written in company."""
        if self._losses:
            self._note_losses()

    def sharded(self, tensor: Any) -> None:
        """A flat gradient on its way to be reduced and scattered."""
        if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and len(self._shards) < MOST_SHARDED:
            self._shards.append(square_of(tensor))

    def _note_losses(self) -> None:
        kept, self._losses = self._losses, []
        if kept:
            values = torch.cat([loss.reshape(-1) for _, loss in kept])
            self.guard.later({"t": "loss", "o": self.index, "s": [step for step, _ in kept]}, {"x": values})

    def _note_gradients(self, step: int) -> None:
        record: dict[str, Any] = {"t": "grad", "o": self.index, "s": step, "ms": int(time.time() * 1000)}
        held: dict[str, Any] = {}
        squares = torch.stack(self._shards) if self._shards else self.gradients.take()
        self._shards = []
        if squares is not None:
            held["g"] = squares
            if self.gradients.sharded:
                record["sharded"] = True
        rows, total = self.batch.take()
        if rows is not None:
            held["b"] = rows
        if total is not None:
            held["i"] = total
        if getattr(self.optimizer, "found_inf", None) is not None:
            record["scaled"] = True
        if self.parameters:
            record["r"] = random_state.digest(self.parameters[0].device)
        self._settings(record)
        self.guard.later(record, held)

    def _note_slice(self, step: int) -> None:
        layout = self._laid_out()
        part = layout.due(step, self.guard.plan.slices)
        pieces = layout.of_part(part)
        if pieces:
            sums, keep = _summed(pieces)
            record = {"t": "slice", "o": self.index, "s": step, "l": layout.id, "q": part,
                      "k": layout.parts * self.guard.plan.slices, "_p": keep}  # fmt: skip
            self.guard.later(record, {"p": sums})

    def _settings(self, record: dict[str, Any]) -> None:
        """Learning rates and the other numbers of the optimizer, where they have changed."""
        rates: list[Any] = []
        others = []
        for group in self.optimizer.param_groups:
            rate = group.get("lr")
            rates.append(rate if isinstance(rate, (int, float)) else None)
            others += [(k, v) for k, v in group.items() if k not in ("lr", "params") and _simple(v)]
        if rates != self._rates:
            self._rates = record["lr"] = rates
        text = f"{binascii.crc32(repr(others).encode()):08x}"
        if text != self._others:
            self._others = record["h"] = text
            record["hs"] = repr(others)[:400]

    def _laid_out(self) -> Layout:
        shape = (len(self.optimizer.param_groups), len(self.optimizer.state))
        if self.layout is None or shape != self._shape:
            self._shape = shape
            buffers = [(clean(name), each) for root in self.roots for name, each in root.named_buffers()]
            layout = Layout(self.optimizer, self.names, self.replicas, buffers, self._frozen())
            if self.layout is None or layout.id != self.layout.id:
                self.guard.later({**layout.record(), "o": self.index})
            self.layout = layout
        return self.layout

    def _frozen(self) -> list[Any]:
        """Parameters of the model that are not trained, as beneath an adapter: all ranks must have the same."""
        return [p for root in self.roots for p in root.parameters() if not p.requires_grad]

    def everything(self, why: str, **more: Any) -> None:
        """The sums of all parameters and of the optimizer's state as they are now."""
        layout = self._laid_out()
        pieces = layout.everything()
        sums, keeps, waiting, size = [], [], [], 0
        for number, (_, piece) in enumerate(pieces):
            waiting.append(piece)
            size += piece.numel() * piece.element_size()
            last = number + 1 == len(pieces) or pieces[number + 1][1].device != piece.device
            if size > AT_ONCE or last:
                rows, join = checksum.sums(waiting)
                sums.append(rows)
                keeps.append((rows.numel(), join))
                waiting, size = [], 0
        if not sums:
            return
        units = [index for index, _ in pieces]
        count = len(layout.units)

        def keep(values: list[int]) -> str:
            totals: dict[int, int] = {}
            for unit, value in zip(units, _joined(keeps, values)):  # noqa: B905 - for any Python that torch runs on
                totals[unit] = totals.get(unit, 0) * 0x9E3779B97F4A7C15 + value
            return "".join(checksum.short(totals[unit]) if unit in totals else MOVED for unit in range(count))

        record = {"t": "full", "o": self.index, "s": self.count, "why": why, "l": layout.id, "_u": keep, **more}
        self.guard.later(record, {"u": _together(sums)})

    # -- how long things take

    def _measure(self) -> None:
        # Of a CPU the guard takes a share, of a GPU's step it takes time.
        now = time.process_time() if self._on_cpu else time.perf_counter()
        self._slice_s.append(self._sliced)
        self._paces.append(now - self._began)
        self._began, self._spent = now, 0.0
        if len(self._paces) > 2 * SETTLED:
            del self._paces[:SETTLED], self._slice_s[:SETTLED], self._look_s[:SETTLED]

    def costs(self) -> tuple[float, float, float]:
        """Seconds of a step, of a look at gradients, of a look at a slice; the first steps allocate and warm up.

        A thread that is ahead of its GPU waits in whatever it launches next: the quickest look did not."""
        typical = _median if self._on_cpu else _least
        return _median(self._paces[4:]), typical(self._look_s[4:]), typical(self._slice_s[4:])


def _summed(pieces: list[tuple[Any, bool]]) -> tuple[Any, Callable[[list[int]], str]]:
    """The sums of pieces, by device; and how to write them down."""
    by_device: dict[Any, list[int]] = {}
    for index, (piece, _) in enumerate(pieces):
        by_device.setdefault(piece.device, []).append(index)
    order = [index for indices in by_device.values() for index in indices]
    made = [checksum.sums([pieces[index][0] for index in indices]) for indices in by_device.values()]
    keeps = [(rows.numel(), join) for rows, join in made]
    counts = [counted for _, counted in pieces]

    def keep(values: list[int]) -> str:
        texts = [MOVED] * len(counts)
        for index, value in zip(order, _joined(keeps, values)):  # noqa: B905
            if counts[index]:
                texts[index] = checksum.short(value)
        return "".join(texts)

    return _together([rows for rows, _ in made]), keep


def _together(rows: list[Any]) -> Any:
    """On a GPU, if any of them is."""
    target = next((each.device for each in rows if each.device.type == "cuda"), rows[0].device)
    return torch.cat([each.to(target, non_blocking=True) for each in rows])


def _joined(keeps: list[tuple[int, Callable[[list[int]], list[int]]]], values: list[int]) -> list[int]:
    totals, at = [], 0
    for count, join in keeps:
        totals += join(values[at : at + count])
        at += count
    return totals


def _simple(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str)) or (
        isinstance(value, tuple) and all(isinstance(each, (int, float)) for each in value)
    )  # fmt: skip


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2] if values else 0.0


def _least(values: list[float]) -> float:
    return min(values, default=0.0)
