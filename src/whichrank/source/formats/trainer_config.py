"""Configuration files of Accelerate and DeepSpeed: what can't hold together for any number of GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, NamedTuple

from whichrank.records import launches
from whichrank.records.launches import Launch
from whichrank.records.settings import Clash
from whichrank.source.formats.yaml_tree import Node

if TYPE_CHECKING:
    from whichrank.source.formats.manifest import Manifest

BATCH, MICRO, STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
# deepspeed/runtime/constants.py and DeepSpeedZeroConfig, which forbids other keys (deepspeedai/DeepSpeed).
_TOP = (
    BATCH, MICRO, STEPS, "zero_optimization", "steps_per_print", "gradient_clipping", "wall_clock_breakdown",
    "optimizer", "scheduler", "fp16", "bf16", "prescale_gradients", "communication_data_type",
    "activation_checkpointing",
    "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "gradient_predivide_factor", "sparse_gradients",
)  # fmt: skip
_ZERO = (
    "stage", "contiguous_gradients", "reduce_scatter", "reduce_bucket_size", "allgather_partitions",
    "allgather_bucket_size", "overlap_comm", "offload_param", "offload_optimizer", "sub_group_size",
    "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold", "stage3_max_live_parameters",
    "stage3_max_reuse_distance", "stage3_gather_16bit_weights_on_model_save", "stage3_model_persistence_threshold",
    "stage3_gather_fp16_weights_on_model_save", "stage3_module_granularity_threshold", "round_robin_gradients",
    "zero_hpz_partition_size", "zero_quantized_weights", "zero_quantized_gradients", "ignore_unused_parameters",
    "load_from_fp32_weights", "elastic_checkpoint", "cpu_offload", "cpu_offload_param", "memory_efficient_linear",
    "mics_shard_size", "mics_hierarchical_params_gather", "zero_quantized_nontrainable_weights", "legacy_stage1",
)  # fmt: skip
# ClusterConfig in commands/config/config_args.py, which refuses other keys (huggingface/accelerate).
_ACCELERATE = (
    "compute_environment", "distributed_type", "mixed_precision", "use_cpu", "debug", "num_processes", "machine_rank",
    "num_machines", "gpu_ids", "main_process_ip", "main_process_port", "rdzv_backend", "same_network",
    "main_training_function", "enable_cpu_affinity", "deepspeed_config", "fsdp_config", "megatron_lm_config",
    "dynamo_config", "downcast_bf16", "fp8_config", "parallelism_config", "mpirun_config", "tpu_env", "tpu_use_sudo",
    "tpu_use_cluster", "tpu_name", "tpu_zone", "tpu_vm", "commands", "command_file", "dynamo_backend", "fp16",
)  # fmt: skip
_OF_THE_FILE = (
    STEPS, "gradient_clipping", "zero_stage", "offload_optimizer_device", "offload_param_device",
    "offload_param_nvme_path", "offload_optimizer_nvme_path", "zero3_save_16bit_model",
)  # fmt: skip
_NEARLY = 0.86


class Problem(NamedTuple):
    """What the library refuses or ignores, and the line that says it."""

    name: str
    line: int
    why: str
    fix: str


def is_deepspeed(root: Node) -> bool:
    keys = {key.text for key, _ in root.pairs}
    return bool(keys & {"zero_optimization", MICRO}) or (BATCH in keys and bool(keys & {"fp16", "bf16", "optimizer"}))


def deepspeed(root: Node) -> Iterator[Problem]:
    """What DeepSpeed stops at, or silently leaves out, on any number of GPUs."""
    yield from _batch(root)
    half, brain, amp = (_switched_on(root, name) for name in ("fp16", "bf16", "amp"))
    if half is not None and brain is not None:
        why = "fp16 and bf16 are both enabled, and DeepSpeed refuses to start"
        yield Problem("fp16 and bf16", max(half.line, brain.line), why, "Enable one of the two.")
    zero = root.get("zero_optimization")
    yield from _misspelt(root, _TOP, "DeepSpeed ignores it")
    if zero is None or zero.kind != "map":
        return
    yield from _misspelt(zero, _ZERO, "DeepSpeed refuses the configuration")
    stage = zero.get("stage")
    number = int(stage.text) if stage is not None and re.fullmatch(r"\d{1,3}", stage.text) else 0
    if stage is not None and number > 3:
        yield Problem("stage", stage.line, f"ZeRO has the stages 0 to 3, not {number}", "Write 3.")
    elif amp is not None and number:
        yield Problem("amp", amp.line, "DeepSpeed does not take amp together with ZeRO", "Use fp16 or bf16.")
    yield from _offloading(zero, stage, number)


def _offloading(zero: Node, stage: Node | None, number: int) -> Iterator[Problem]:
    for name, least in (("offload_param", 3), ("offload_optimizer", 1)):
        part = zero.get(name)
        device = part.get("device") if part is not None and part.kind == "map" else None
        if device is None or device.text in {"none", "None", "auto"} or "\ue000" in device.text:
            continue
        if device.text not in {"cpu", "nvme"}:
            yield Problem(name, device.line, f"'{device.text}' is none of cpu, nvme, none", "Write cpu or nvme.")
        elif stage is not None and stage.text.isdecimal() and number < (3 if device.text == "nvme" else least):
            needs = 3 if device.text == "nvme" else least
            why = f"{name} to {device.text} needs ZeRO stage {needs} at least, and stage is {number}"
            yield Problem(name, device.line, why, f"Write stage {needs}, or drop {name}.")


def _batch(root: Node) -> Iterator[Problem]:
    """The batch is that of a GPU times steps times GPUs: what the first two don't divide fits no number of GPUs."""
    batch, micro, steps = (root.get(name) for name in (BATCH, MICRO, STEPS))
    sizes = [int(n.text) if n is not None and re.fullmatch(r"\d{1,9}", n.text) else None for n in (batch, micro, steps)]
    for name, node, size in zip((BATCH, MICRO, STEPS), (batch, micro, steps), sizes, strict=True):
        if node is not None and size == 0:
            yield Problem(name, node.line, "it has to be above 0", "Write a positive number.")
            return
    whole, part = sizes[0], (sizes[1] or 1) * (sizes[2] or 1)
    if batch is not None and whole is not None and part > 1 and whole % part:
        known = " times ".join(str(size) for size in sizes[1:] if size)
        said = f"{whole} is no multiple of {known}"
        why = f"{said}, so that no number of GPUs makes it up, and DeepSpeed refuses to start"
        fix = f"Write {known} times the number of GPUs, or leave {BATCH} out."
        yield Problem(BATCH, batch.line, why, fix)


def _switched_on(root: Node, name: str) -> Node | None:
    part = root.get(name, "bfloat16") if name == "bf16" else root.get(name)
    enabled = part.get("enabled") if part is not None and part.kind == "map" else None
    return enabled if enabled is not None and enabled.plain and enabled.text.lower() == "true" else None


def _misspelt(node: Node, known: tuple[str, ...], fate: str) -> Iterator[Problem]:
    for key, _ in node.pairs:
        if key.text in known or key.text.startswith("x-"):
            continue
        near = get_close_matches(key.text, known, 1, _NEARLY)
        if near and node.get(near[0]) is None:
            yield Problem(key.text, key.line, f"{fate}: the key is called {near[0]}", f"Write {near[0]}.")


def check(manifest: Manifest) -> None:
    """Look at one configuration."""
    if manifest.root.get("distributed_type") is not None:
        _accelerate(manifest)
    else:
        _report(manifest, deepspeed(manifest.root))


def _accelerate(manifest: Manifest) -> None:
    """Accelerate's configuration: its size, the address of the first host, and sections that nothing reads."""
    root = manifest.root
    machines, address = root.get("num_machines"), root.get("main_process_ip")
    several = machines is not None and machines.text.isdecimal() and machines.text not in {"0", "1"}
    if several and address is not None and re.fullmatch(r"localhost|127\.\d+\.\d+\.\d+|::1", address.text):
        why = "other machines can't reach the loopback address"
        fix = "Give the address of the first machine."
        manifest.out.clashes.append(Clash("main_process_ip", manifest.ref(address.line), why, fix))
    launch = Launch("accelerate", manifest.ref(root.line))
    launch.nodes, launch.total = _number(manifest, "num_machines"), _number(manifest, "num_processes")
    ids = root.get("gpu_ids")
    if ids is not None and re.fullmatch(r"\d+(?:,\d+)*", ids.text):
        launch.visible = launches.Count(len(ids.text.split(",")), manifest.ref(ids.line), "gpu_ids")
    manifest.launch(launch)
    _report(manifest, _of_accelerate(root, launch))


def _report(manifest: Manifest, problems: Iterator[Problem]) -> None:
    for name, line, why, fix in problems:
        manifest.out.clashes.append(Clash(name, manifest.ref(line), why, fix))


def _of_accelerate(root: Node, launch: Launch) -> Iterator[Problem]:
    yield from _misspelt(root, _ACCELERATE, "Accelerate refuses the file")
    rank, kind, precision = (root.get(name) for name in ("machine_rank", "distributed_type", "mixed_precision"))
    nodes = launch.nodes.number if launch.nodes is not None else 0
    if rank is not None and nodes and re.fullmatch(r"\d{1,6}", rank.text) and int(rank.text) >= nodes:
        why = f"machines are numbered from 0, so that {nodes} of them end at {nodes - 1}"
        yield Problem("machine_rank", rank.line, why, f"Write a number from 0 to {nodes - 1}.")
    if precision is not None and precision.text.lower() not in {"no", "fp16", "bf16", "fp8", "false", ""}:
        why = f"'{precision.text}' is none of no, fp16, bf16, fp8, and Accelerate refuses it"
        yield Problem("mixed_precision", precision.line, why, "Write one of these.")
    for name, wanted in (("deepspeed_config", "DEEPSPEED"), ("fsdp_config", "FSDP")):
        part = root.get(name)
        if part is not None and part.pairs and kind is not None and kind.text.startswith(("MULTI_", "NO")):
            why = f"distributed_type {kind.text} does not read {name}"
            yield Problem("distributed_type", kind.line, why, f"Write distributed_type: {wanted}, or drop {name}.")
    inner = root.get("deepspeed_config")
    if inner is None or inner.kind != "map":
        return
    other = next((key for key, _ in inner.pairs if key.text in _OF_THE_FILE), None)
    if inner.get("deepspeed_config_file") is not None and other is not None:
        why = "Accelerate refuses it beside deepspeed_config_file, which has to say it itself"
        yield Problem(other.text, other.line, why, f"Put {other.text} into that file.")
    stage, early = inner.get("zero_stage"), inner.get("zero3_init_flag")
    if stage is not None and stage.text in {"0", "1", "2"}:
        if early is not None and early.text.lower() == "true":
            why = f"it is for ZeRO stage 3 only, and zero_stage is {stage.text}"
            yield Problem("zero3_init_flag", early.line, why, "Write false, or zero_stage: 3.")
        device = inner.get("offload_param_device")
        if device is not None and device.text in {"cpu", "nvme"}:
            why = f"only ZeRO stage 3 can offload parameters, and zero_stage is {stage.text}"
            yield Problem("offload_param_device", device.line, why, "Write none, or zero_stage: 3.")


def _number(manifest: Manifest, name: str) -> launches.Count | None:
    node = manifest.root.get(name)
    found = node is not None and re.fullmatch(r"[1-9]\d{0,5}", node.text)
    return launches.Count(int(node.text), manifest.ref(node.line), name) if node is not None and found else None
