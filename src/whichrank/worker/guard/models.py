"""Which modules and optimizers this process has, what their tensors are called, and which ranks must hold the same.

What must be equal is read off torch's own wrappers: DistributedDataParallel, FSDP, and the placements of a DTensor.
For plain modules nothing says so; their tensors are written down all the same, and whoever judges learns from the
first steps which of them stay equal.
"""

from __future__ import annotations

import gc
from typing import Any, NamedTuple

import torch

_WRAPPERS = ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod.", "module.")
LEARNED, APART = "", "apart"
"""Nothing says which ranks hold the same; replicas that may drift apart between two averagings."""
BY_CHANCE = 16


class Found(NamedTuple):
    """What one look at the heap has found."""

    modules: list[Any]
    roots: list[Any]
    optimizers: list[Any]


def scan() -> Found:
    """All modules and optimizers of this process, by the garbage collector. Takes as long as a small collection."""
    module_type, optimizer_type = torch.nn.Module, torch.optim.Optimizer
    modules, optimizers = [], []
    for thing in gc.get_objects():
        kind = type(thing)  # isinstance would ask proxies, and proxies may do anything
        if issubclass(kind, module_type):
            if "_modules" in thing.__dict__:
                modules.append(thing)
        elif issubclass(kind, optimizer_type) and "param_groups" in thing.__dict__:
            optimizers.append(thing)
    inner = {id(child) for module in modules for child in module.__dict__["_modules"].values() if child is not None}
    return Found(modules, [module for module in modules if id(module) not in inner], optimizers)


def names_of(roots: list[Any]) -> dict[int, str]:
    """Parameter -> its name in the model, without the names of wrappers."""
    found: dict[int, str] = {}
    for root in roots:
        for name, parameter in root.named_parameters(remove_duplicate=True):
            found.setdefault(id(parameter), clean(name))
    return found


def clean(name: str) -> str:
    for wrapper in _WRAPPERS[:3]:
        name = name.replace(wrapper, "")
    while name.startswith("module."):
        name = name[len("module.") :]
    return name


def wrapped(found: Found, kind: str) -> list[Any]:
    """Modules of a class of this name or of one derived from it."""
    return [m for m in found.modules if any(base.__name__ == kind for base in type(m).__mro__)]


class Replicas:
    """For every parameter the ranks that must hold the same, as text: `0-3`, `0,2`, or LEARNED."""

    def __init__(self, found: Found) -> None:
        self.by_id: dict[int, str] = {}
        self.ddp = wrapped(found, "DistributedDataParallel")
        for module in self.ddp:
            ignored = getattr(module, "parameters_to_ignore", ())
            told = APART if _averages_later(module, found.optimizers) else ranks_text(_ranks(module.process_group))
            for name, parameter in module.module.named_parameters():
                if name not in ignored:
                    self.by_id[id(parameter)] = told
        for module in wrapped(found, "FullyShardedDataParallel"):
            self._add_flat(module)

    def of(self, parameter: Any) -> str:
        mesh = getattr(parameter, "device_mesh", None)
        if mesh is not None:
            ranks = _of_mesh(mesh, parameter.placements)
            # The mesh is one row of a larger one: ranks of other rows may hold the same shard, as with tensor
            # parallelism beneath FSDP. A few numbers may be the same by chance.
            beside = len(ranks) == 1 and mesh.size() < torch.distributed.get_world_size()
            return LEARNED if beside and local(parameter).numel() >= BY_CHANCE else ranks_text(ranks)
        return self.by_id.get(id(parameter), LEARNED)

    def _add_flat(self, module: Any) -> None:
        handle = getattr(module, "_handle", None)
        flat = getattr(handle, "flat_param", None)
        if flat is None:
            return
        strategy = str(getattr(module, "sharding_strategy", "")).rpartition(".")[2]
        if strategy == "NO_SHARD":
            ranks = _ranks(module.process_group)
        elif strategy.lstrip("_").startswith("HYBRID"):
            ranks = _ranks(module._inter_node_pg)  # noqa: SLF001 - nothing public says who holds the same shard
        else:
            ranks = [torch.distributed.get_rank()]
        for parameter in (flat, *(getattr(flat, "_params", None) or ())):
            self.by_id[id(parameter)] = ranks_text(ranks)


def local(tensor: Any) -> Any:
    """The part of a DTensor that lies on this rank, or the tensor."""
    return getattr(tensor, "_local_tensor", tensor)


def ranks_text(ranks: list[int]) -> str:
    """`0-3` for a run, `0,2` otherwise."""
    ranks = sorted(ranks)
    if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"{ranks[0]}-{ranks[-1]}"
    return ",".join(map(str, ranks))


def _ranks(group: Any) -> list[int]:
    return list(torch.distributed.get_process_group_ranks(group))


def _of_mesh(mesh: Any, placements: Any) -> list[int]:
    """Ranks of the mesh that differ from this one only in dimensions along which the tensor is replicated."""
    here = mesh.get_coordinate()
    own = [torch.distributed.get_rank()]
    if here is None or any(placement.is_partial() for placement in placements):
        return own
    at = tuple(slice(None) if placement.is_replicate() else place for placement, place in zip(placements, here))  # noqa: B905
    return list(mesh.mesh[at].reshape(-1).tolist())


def _averages_later(module: Any, optimizers: list[Any]) -> bool:
    """Whether replicas may drift apart between two averagings, as with post-local SGD."""
    hooks = [getattr(hook[0] if isinstance(hook, tuple) else hook, "__name__", "?") for hook in _hooks(module)]
    known = ("allreduce_hook", "fp16_compress_hook", "bf16_compress_hook", "noop_hook")
    strange = [hook for hook in hooks if hook not in known and "powerSGD" not in hook and "compress" not in hook]
    return bool(strange) or any("LocalSGD" in type(optimizer).__name__ for optimizer in optimizers)


def _hooks(module: Any) -> list[Any]:
    found = getattr(module, "_comm_hooks", None)
    return list(found) if isinstance(found, list) else []
