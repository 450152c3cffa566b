"""What a rehearsal looks at and changes in the training loop: loaders, losses, optimizer steps, replicas, seeds."""

from __future__ import annotations

import functools
import random
import zlib
from collections.abc import Iterator
from typing import Any
from weakref import WeakSet

import torch
from torch.nn import functional
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader

from whichrank.worker.rehearsal import client
from whichrank.worker.rehearsal.values import raw

LOSSES = (
    "cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "kl_div", "poisson_nll_loss", "gaussian_nll_loss", "ctc_loss",
)  # fmt: skip
SAMPLE = 1 << 20
"""Bytes of each parameter that are compared."""

models: WeakSet[Any] = WeakSet()


class Plan:
    """What this rank is to be given besides, in an exploration."""

    kind = ""
    at = 0
    guilty = False
    workers = 1
    steps = 0
    losses = 0
    batches = 0
    times_out = 0


def install(workers: int) -> None:
    Plan.workers = workers
    watch_loaders()
    watch_losses()
    watch_models()
    register_optimizer_step_post_hook(after_step)


def shift_seeds(shift: int) -> None:
    """Every seed of the script becomes another one, the same on all ranks."""
    if not shift:
        return
    seed, plain = torch.manual_seed, random.seed
    torch.manual_seed = lambda number: seed(int(number) + shift)
    random.seed = lambda number=None, *rest: plain(number + shift if isinstance(number, int) else number, *rest)
    try:
        import numpy as np
    except ImportError:
        return
    numpy_seed = np.random.seed
    np.random.seed = lambda number=None: numpy_seed(None if number is None else (int(number) + shift) % (1 << 32))


class Batches:
    """A loader's iterator that tells when it is exhausted, and may change one batch."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.count = inner, 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        return len(self.inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __next__(self) -> Any:
        try:
            batch = next(self.inner)
        except StopIteration:
            Plan.times_out += 1
            client.note("exhausted", batches=self.count, times=Plan.times_out, at=client.stack())
            raise
        self.count += 1
        Plan.batches += 1
        if Plan.batches == 1:
            client.note("batch")
        if Plan.guilty and Plan.kind == "empty" and Plan.batches == Plan.at:
            client.note("injected")
            return emptied(batch)
        return batch


def emptied(batch: Any) -> Any:
    """The same batch without its samples."""
    if isinstance(batch, torch.Tensor):
        return batch[:0] if batch.dim() else batch
    if isinstance(batch, dict):
        return {key: emptied(value) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        parts = [emptied(value) for value in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch


def watch_loaders() -> None:
    make, iterate = DataLoader.__init__, DataLoader.__iter__

    @functools.wraps(make)  # trainers ask for the signature, and make the loader again
    def init(self: Any, *args: Any, **options: Any) -> None:
        options.update(pin_memory=False)
        given = options.get("num_workers", 0)
        options["num_workers"] = min(given, Plan.workers)
        if options.get("multiprocessing_context") is not None:
            options["multiprocessing_context"] = "fork" if options["num_workers"] else None
        if not options["num_workers"]:
            for key in ("prefetch_factor", "persistent_workers", "timeout", "worker_init_fn"):
                options.pop(key, None)
        make(self, *args, **options)

    DataLoader.__init__ = init
    DataLoader.__iter__ = lambda self: Batches(iterate(self))


def watch_losses() -> None:
    def watched(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **options: Any) -> Any:
            result = function(*args, **options)
            Plan.losses += 1
            if Plan.losses == 1:
                client.note("loss")
            if Plan.guilty and Plan.kind == "nan" and Plan.losses == Plan.at:
                client.note("injected")
                return result * float("nan")
            return result

        return wrapper

    for name in LOSSES:
        setattr(functional, name, watched(getattr(functional, name)))


def watch_models() -> None:
    from torch.nn.parallel import DistributedDataParallel

    make = DistributedDataParallel.__init__

    def init(self: Any, *args: Any, **options: Any) -> None:
        make(self, *args, **options)
        models.add(self)

    DistributedDataParallel.__init__ = init


def after_step(optimizer: Any, *_: Any) -> None:
    """Tell the referee that a step was made, and now and then what the replicas are."""
    Plan.steps += 1
    step = Plan.steps
    facts: dict[str, Any] = {"step": step}
    if step <= 3 or step % 10 == 0:
        prints = [fingerprint(model, optimizer) for model in sorted(models, key=id)]
        if any(one is not None for one in prints):
            rates = [group.get("lr") for group in optimizer.param_groups][:8]
            facts |= {"prints": prints, "at": client.stack()}
            facts["rates"] = [float(rate) if rate is not None else None for rate in rates]
    client.note("step", **facts)


def fingerprint(model: Any, optimizer: Any) -> int | None:
    """A checksum of the parameters, if this optimizer keeps all of them and the last gradients were shared."""
    mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
    wanted = [p for p in model.module.parameters() if p.requires_grad]
    world = model.process_group.size() == torch.distributed.get_world_size()
    if not wanted or not world or not model.require_backward_grad_sync or any(id(p) not in mine for p in wanted):
        return None
    value = 0
    for parameter in wanted:
        value = zlib.crc32(raw(parameter)[:SAMPLE], value)
    return value
