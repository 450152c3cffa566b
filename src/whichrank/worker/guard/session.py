"""The guard of one process: it is told of backward passes, optimizer steps and collectives, and writes what it saw.

The job's thread starts the measurements; what they come to is read and written by a thread of the guard, once the
device has got there. The job never waits for it.
"""

from __future__ import annotations

import atexit
import math
import os
import threading
from collections import deque
from contextlib import suppress
from typing import Any

import torch

from whichrank.worker.guard import checksum, models, saving, start
from whichrank.worker.guard.by_hand import PASSES, ByHand
from whichrank.worker.guard.collectives import Collectives
from whichrank.worker.guard.gradients import coded, roots
from whichrank.worker.guard.notes import Notes
from whichrank.worker.guard.plan import Channel, Plan
from whichrank.worker.guard.watched import SETTLED, Watched

BEAT_S = 0.25
END_S = 5.0
GRADIENTS, SLICES = 0.003, 0.002
"""Of the time of a step: what looks at gradients and at slices may take of the job's thread."""
MOST_EVERY = 64
EARLY_SCANS, MOST_SCANS = 3, 64
"""Looks at the heap before an optimizer has stepped, and in all."""
FORGOTTEN = 4096
"""Steps of others after which an optimizer that does not step any more is let go, with its model."""


class Guard:
    """One per process."""

    def __init__(self, folder: str, path: str, mode: str = "on") -> None:
        self.folder, self.path, self.mode = folder, path, mode
        self.pid = os.getpid()
        self.collectives = Collectives()
        self.collectives.before = self.before_collective
        every = _whole(os.environ.get("WHICHRANK_GUARD_EVERY", ""))
        self.plan, self.planned = Plan(every or 1, every or 1), every > 0
        self.paused = False
        """Nothing is measured, steps are counted on: for measurements of what the guard costs."""
        self.replay_every = _whole(os.environ.get("WHICHRANK_GUARD_REPLAY", ""))
        """Steps between two micro-batches that are computed twice without any suspicion; 0 for never."""
        self.watched: dict[int, Watched] = {}
        self.rank = -1
        self.notes: Notes | None = None
        self.channel = Channel(folder)
        self.queue: deque[tuple[dict[str, Any], dict[str, Any], Any]] = deque(maxlen=4096)
        self.problems = 0
        self._scans = self._numbered = self._steps = self._passes = 0
        self._by_hand: ByHand | None = None
        self._captured = self._late = False
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._loss: Any = None

    # -- told by hooks, in the job's thread

    @property
    def on(self) -> bool:
        """Whether there is a job of several ranks to guard; begins when there is."""
        if self.notes is not None:
            return True
        if self.problems:
            return False
        if os.getpid() != self.pid:
            self._adopt()
        if not torch.distributed.is_initialized() or torch.distributed.get_world_size() < 2:
            return False
        self._begin()
        return True

    @property
    def idle(self) -> bool:
        """Whether nothing may be measured now: what is launched while a graph is captured would become part of it."""
        return self.paused or _capturing()

    def before_backward(self, tensors: Any) -> None:
        loss = tensors[0] if isinstance(tensors, (tuple, list)) and tensors else tensors
        if self.idle or not isinstance(loss, torch.Tensor) or not loss.requires_grad or not self.on:
            return
        self._passes += 1
        if not self.watched and self._scans < EARLY_SCANS:
            self.find()
        self._update_by_hand()
        if loss.numel() == 1:
            self._loss = loss.detach().clone()  # the memory of a CUDA graph's output is used again
        if not any(watched.looks for watched in self.watched.values()):
            return
        engine = torch.autograd.Variable._execution_engine  # noqa: SLF001 - torch's own wrappers queue the same way

        def began(_gradient: Any) -> None:
            engine.queue_callback(self.backward_passed)

        if loss.grad_fn is not None:
            loss.register_hook(began)

    def backward_passed(self) -> None:
        try:
            for watched in self.watched.values():
                if watched.looks:
                    watched.timed(watched.gradients.passed)
        except Exception as error:  # noqa: BLE001 - the job's gradients are not ours to lose
            self.problem(error)

    def before_collective(self, name: str, tensor: Any) -> None:
        if self.paused or (self.notes is None and not self.on):
            return
        for watched in self.watched.values():
            if watched.gradients.pending:
                watched.timed(watched.gradients.look)
            if watched.gradients.sharded and watched.looks and name.startswith("reduce_scatter"):
                watched.sharded(tensor)

    def before_step(self, optimizer: Any) -> None:
        if self.idle or not self.on:
            return
        watched = self.watched.get(id(optimizer))
        if watched is not None and not watched.count and not watched.roots:
            del self.watched[id(optimizer)]  # found while modules held whole parameters, not the optimizer's shards
            watched = None
        if watched is None:
            self.find()
            watched = self.watched.get(id(optimizer))
        if watched is not None:
            if watched.index < 0:  # the order of first steps is the same on every rank, that of the heap is not
                watched.index, self._numbered = self._numbered, self._numbered + 1
            watched.before_step()

    def after_step(self, optimizer: Any) -> None:
        watched = self.watched.get(id(optimizer))
        if watched is None or _capturing():
            if watched is not None and not self._captured:
                self._captured = True
                self.off("the optimizer's step is captured in a CUDA graph: its replays are not looked at")
            return
        if self.paused:
            watched.count += 1
            return
        loss, self._loss = self._loss, None
        watched.after_step(loss)
        self.collectives.step = max(self.collectives.step, watched.count)
        self._steps += 1
        watched.stepped = self._steps
        if self._steps % 256 == 0:
            self.watched = {key: w for key, w in self.watched.items() if self._steps - w.stepped < FORGOTTEN}
        if self.rank == 0 and not self.planned and watched.count == SETTLED and watched.index == 0:
            self.decide(watched)

    def _update_by_hand(self) -> None:
        """Before a backward pass: a script without an optimizer may have updated its parameters since the last."""
        if self._by_hand is not None:
            if self._by_hand.stepped():
                self.before_step(self._by_hand)
                self.after_step(self._by_hand)
        elif self._passes == PASSES and not self.watched:
            found = models.scan()
            by_hand = ByHand(found.roots)
            if by_hand.parameters and not found.optimizers:
                self._by_hand = by_hand
                self._watch(by_hand, found)
                self.watched[id(by_hand)].count = PASSES - 1  # the updates so far

    # -- what is there

    def find(self) -> None:
        """Look for models and optimizers; those that are known already stay as they are."""
        if self._scans >= MOST_SCANS:
            return
        self._scans += 1
        found = models.scan()
        for optimizer in found.optimizers:
            if id(optimizer) not in self.watched and any(group["params"] for group in optimizer.param_groups):
                self._watch(optimizer, found)

    def _watch(self, optimizer: Any, found: models.Found) -> None:
        mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
        roots = [root for root in found.roots if any(id(p) in mine for p in root.parameters())]
        names, replicas = models.names_of(found.roots), models.Replicas(found)
        self.watched[id(optimizer)] = Watched(self, optimizer, names, replicas, roots)

    def decide(self, watched: Watched) -> None:
        """How often to look: the time that it takes over the time that a step takes."""
        step_s, look_s, slice_s = watched.costs()
        slices = 1 << (_every(slice_s, step_s, SLICES) - 1).bit_length()
        plan = Plan(_every(look_s, step_s, GRADIENTS), slices)
        self.plan, self.planned = plan, True
        self.later({"t": "plan", "gradients": plan.gradients, "slices": plan.slices, "step_s": round(step_s, 6),
                    "look_s": round(look_s, 6), "slice_s": round(slice_s, 6)})  # fmt: skip
        self.channel.tell(plan)

    # -- written by the thread

    def later(self, record: dict[str, Any], tensors: dict[str, Any] | None = None) -> None:
        """Write this when the device has got there: tensors take the place of fields of their name."""
        held, event = tensors or {}, None
        if any(tensor.device.type == "cuda" for tensor in held.values()):
            held = {name: _to_host(tensor) for name, tensor in held.items()}
            event = torch.cuda.Event()
            event.record()
        self.queue.append((record, held, event))

    def problem(self, error: BaseException) -> None:
        """Something of ours failed: said once in a while, and the job goes on."""
        self.problems += 1
        if self.problems <= 8 and self.notes is not None:
            self.off(f"{type(error).__name__}: {error}")
        if self.problems > 64:
            self.collectives.muted = True
            self.watched.clear()

    def off(self, why: str) -> None:
        """Say what is not looked at."""
        self.queue.append(({"t": "off", "why": why[:300]}, {}, None))

    def _begin(self) -> None:
        self.rank = torch.distributed.get_rank()
        self.notes, self.channel = Notes(self.path), Channel(self.folder)
        self.notes.write([start.record(self.rank, torch.distributed.get_world_size())])
        if self.mode == "strict":
            from whichrank.worker.guard import strict

            self.collectives.strict = strict.of(self.rank, self.collectives)
        self._thread = threading.Thread(target=self._run, name="whichrank-guard", daemon=True)
        self._thread.start()
        atexit.register(self.end)

    def _adopt(self) -> None:
        """In the child of a fork that becomes a rank itself: a file of its own."""
        from whichrank.worker.lastwords import start_ticks

        self.pid = os.getpid()
        self.path = f"{self.folder}/{self.pid}.{start_ticks()}.guard"

    def _run(self) -> None:
        serial = start.serial()
        if serial:
            self.queue.append(({"t": "gpu", "serial": serial}, {}, None))
        while not self._stopped.wait(BEAT_S):
            try:
                self.write()
            except OSError:
                return  # a full disk: the job goes on unguarded
            except Exception as error:  # noqa: BLE001 - a guard never disturbs what it guards
                self.problem(error)

    def write(self, *, last: bool = False) -> None:
        records: list[dict[str, Any]] = []
        while self.queue:
            record, held, event = self.queue[0]
            if event is not None and not event.query() and not last:
                break
            self.queue.popleft()
            records.append(_finished(record, held))
            if event is not None and "g" in held:
                self._heard(record["o"], held["g"])
        self._late = self._late or saving.wrap_late(self)
        records = self.collectives.drain() + records
        if self.notes is not None:
            self.notes.write(records)
        if not self.planned and self.rank > 0:
            self._hear()

    def _heard(self, optimizer: int, squares: Any) -> None:
        """Gradients that were strange on a device: the next micro-batches are computed twice."""
        for watched in list(self.watched.values()):
            if watched.index == optimizer:
                watched.replays.heard(roots(squares))

    def _hear(self) -> None:
        plan = self.channel.hear()
        if plan is not None:
            self.plan, self.planned = plan, True

    def end(self) -> None:
        if self._thread is None or os.getpid() != self.pid:
            return
        self._stopped.set()
        self._thread.join(END_S)
        with suppress(Exception):
            for watched in self.watched.values():
                watched.flush()
            if self._passes >= PASSES and not self._steps:
                self.off("no step of an optimizer was seen, as when it is compiled: parameters were not compared")
        with suppress(Exception):
            self.write(last=True)


def _every(look_s: float, step_s: float, share: float) -> int:
    return max(1, min(MOST_EVERY, math.ceil(look_s / max(share * step_s, 1e-9))))


def _whole(text: str) -> int:
    return int(text) if text.isdigit() and len(text) < 9 else 0


def _capturing() -> bool:
    return bool(torch.cuda.is_available() and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def _to_host(tensor: Any) -> Any:
    if tensor.device.type != "cuda":
        return tensor
    host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
    return host.copy_(tensor, non_blocking=True)


def _finished(record: dict[str, Any], held: dict[str, Any]) -> dict[str, Any]:
    """The record with the values of its tensors."""
    for name, tensor in held.items():
        values = tensor.reshape(-1).tolist()
        if name in ("p", "u"):
            keep = record.pop(f"_{name}")
            record[name] = keep(values)
        elif name == "b":
            record["b"] = [checksum.short(value) for value in values]
        elif name == "g":
            record["g"] = coded(roots(tensor))
            record["n"] = _number(sum(values) ** 0.5)
        elif name == "x":
            record["x"] = [_number(value) for value in values]
        else:
            record[name] = _number(values[0])
    return record


def _number(value: float) -> Any:
    """JSON has no word for what is not finite."""
    if value != value:  # noqa: PLR0124 - how a NaN is known
        return "nan"
    return ("inf" if value > 0 else "-inf") if value in (float("inf"), float("-inf")) else float(f"{value:.7g}")
