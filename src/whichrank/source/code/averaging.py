"""Who averages gradients: a wrapper around the model, a library, or the program itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whichrank.source.code.index import Module

_AVERAGING = frozenset({
    "DistributedDataParallel", "accelerate", "lightning", "pytorch_lightning", "deepspeed", "horovod", "megatron",
    "apex", "parallel", "transformers",
})  # fmt: skip


def wraps(module: Module) -> bool:
    """Whether something else than the program itself averages gradients."""
    names = {part for name in module.imports.values() for part in name.split(".")}
    return bool(names & _AVERAGING)


def averages(module: Module) -> bool:
    """Whether a file wraps a model: `DDP(model)`, `fully_shard(model)`."""
    if not module.trains and not any("parallel" in name or "fsdp" in name for name in module.imports.values()):
        return False
    return any("DistributedDataParallel" in line or "fully_shard(" in line or "DDP(" in line for line in module.lines)


def shards(module: Module) -> bool:
    return any(
        name.rpartition(".")[2] in {"FullyShardedDataParallel", "fully_shard"} for name in module.imports.values()
    )
