"""Calls that matter for the order of a program: what makes the process group, chooses a device, or uses CUDA."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from whichrank.source._program_file import Function
from whichrank.source.nodes import called_as, walk

_MAKES_GROUP = frozenset({
    "init_process_group", "init_distributed", "init_device_mesh", "initialize_megatron", "Accelerator", "PartialState",
    "TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig", "DPOConfig", "GRPOConfig",
    "parse_args_into_dataclasses",
})  # fmt: skip
# Lightning makes the process group before it calls any of these; so do the loops that call callbacks.
_HOOKS = frozenset({
    "setup", "configure_model", "configure_optimizers", "training_step", "validation_step", "forward",
    "train_dataloader", "val_dataloader", "configure_sharded_model", "test_step",
})  # fmt: skip
_HOOK_OWNERS = ("LightningModule", "LightningDataModule", "Callback", "TrainerCallback")
_COLLECTIVES = frozenset({
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_single", "all_gather_object", "all_to_all",
    "all_to_all_single", "barrier", "broadcast", "broadcast_object_list", "gather", "reduce",
    "reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_single", "scatter", "send", "recv", "isend", "irecv",
    "new_group",
})  # fmt: skip
_USES_CUDA = frozenset({
    "set_device", "init", "synchronize", "current_device", "empty_cache", "mem_get_info",
    "get_device_properties", "get_device_name",
    "get_device_capability", "memory_allocated", "Stream", "Event", "current_stream",
})  # fmt: skip


def makes_group(name: str, dotted: str) -> bool:
    """Whether a call makes the process group: a collective needs one; `trainer.fit` and others make it inside."""
    if name in _MAKES_GROUP or is_collective(name, dotted):
        return True
    owner, _, name = dotted.lower().rpartition(".")
    fits = name in {"fit", "train", "validate", "test", "predict"} and owner.endswith("trainer")
    return dotted in {"deepspeed.initialize", "hvd.init"} or fits or (name == "launch" and owner.endswith("fabric"))


def _late_hook(name: str) -> bool:
    """Lightning 1 calls prepare_data and this one hook before it makes the group."""
    return name.startswith("on_") and name != "on_before_accelerator_backend_setup"


def hooks(tree: ast.Module) -> Iterator[Function]:
    """Methods of Lightning's and others' classes that run when the group is there already."""
    for node in walk(tree):
        if isinstance(node, ast.ClassDef) and any(called_as(b).endswith(_HOOK_OWNERS) for b in node.bases):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and (inner.name in _HOOKS or _late_hook(inner.name)):
                    yield inner


def is_collective(name: str, dotted: str) -> bool:
    return name in _COLLECTIVES and ("dist" in dotted.split(".")[:-1] or "distributed" in dotted)


def guesses_device(node: ast.Call, dotted: str) -> bool:
    """A barrier of torch that is not told its device; one that is given a group may be on the CPU."""
    given = node.args or any(keyword.arg in {"device_ids", "group", None} for keyword in node.keywords)
    return not given and (is_collective("barrier", dotted) or dotted == "barrier")


def chooses_device(node: ast.Call, name: str, dotted: str) -> bool:
    if name == "init_process_group":
        return any(keyword.arg in {"device_id", None} for keyword in node.keywords)
    return name in {"set_device", "set_default_device"} or dotted.endswith("cuda.device")


def touches_cuda(node: ast.Call, name: str, dotted: str) -> bool:
    if ".cuda." in dotted and name in _USES_CUDA:
        return True
    if isinstance(node.func, ast.Attribute) and name == "cuda":
        return True
    values = [*node.args[:1], *(k.value for k in node.keywords if k.arg == "device")]
    moves = isinstance(node.func, ast.Attribute) and (name == "to" or dotted.startswith("torch."))
    return (
        moves
        and name != "device"
        and any(isinstance(v, ast.Constant) and isinstance(v.value, str) and v.value.startswith("cuda") for v in values)
    )
