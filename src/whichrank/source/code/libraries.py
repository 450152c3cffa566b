"""What is known of torch and the trainers beyond the table: wrappers, loaders, groups, shapes."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from whichrank.facts.collectives import rank_sources
from whichrank.source.code.calling.optimizing import optimized
from whichrank.source.code.calling.spawning import spawned
from whichrank.source.code.evaluating.containers import ONE_OF_SEVERAL
from whichrank.source.code.evaluating.disks import NODE_LOCAL
from whichrank.source.code.evaluating.expressions import mixed
from whichrank.source.code.evaluating.ordering import arranged
from whichrank.source.code.evaluating.tensors import tensor
from whichrank.source.code.events import Op
from whichrank.source.code.index import Class
from whichrank.source.code.paths.groups import WORLD_GROUP
from whichrank.source.code.randomness import seeding
from whichrank.source.code.receivers import is_a
from whichrank.source.code.sharding import clipped, sharded
from whichrank.source.code.statements.loops import QUEUES, rounds
from whichrank.source.code.values import CLEAN, UNKNOWN, WORLD, Origin, Value, per_rank, union
from whichrank.source.nodes import last_name

if TYPE_CHECKING:
    from whichrank.facts.collectives import Collective
    from whichrank.source.code.calling.calls import Call
    from whichrank.source.code.frame import Frame

PLACEMENT = frozenset(
    {"device", "device_id", "device_ids", "output_device", "map_location", "non_blocking", "generator"}
)
KEEPS_RECEIVER = frozenset({
    "to", "cuda", "cpu", "eval", "train", "float", "contiguous", "clone", "detach", "requires_grad_", "half",
    "bfloat16", "double", "share_memory", "pin_memory", "numpy", "compile", "parameters", "get_group",
})  # fmt: skip
SHAPED_BY_CONTENT = frozenset(
    {"nonzero", "unique", "masked_select", "argwhere", "flatnonzero", "compress", "pad_sequence"}
)
REDUCES = frozenset({
    "sum", "mean", "max", "min", "item", "size", "any", "all", "norm", "numel", "argmax", "argmin", "std", "var", "dim",
    "prod", "count", "index", "get", "pop", "nelement", "amax", "amin", "median", "logsumexp",
})  # fmt: skip
COUNTS = frozenset({"numel", "nelement", "size"})
SHARDS = frozenset({"shard", "split_dataset_by_node"})
_WRAPPERS = {
    "DistributedDataParallel": "ddp", "DDP": "ddp", "FullyShardedDataParallel": "fsdp", "FSDP": "fsdp",
    "fully_shard": "fsdp", "DistributedModelParallel": "ddp",
}  # fmt: skip
_KINDS = {
    **dict.fromkeys(QUEUES, frozenset({"queue"})),
    "Accelerator": frozenset({"accelerator", "state"}), "PartialState": frozenset({"accelerator", "state"}),
    "AcceleratorState": frozenset({"accelerator", "state"}), "Fabric": frozenset({"fabric"}),
    **dict.fromkeys(("Path", "PurePath", "PosixPath"), frozenset({"path"})),
    **dict.fromkeys(("ThreadPoolExecutor", "ThreadPool"), frozenset({"executor"})),
    **dict.fromkeys(("defaultdict", "OrderedDict", "Counter"), frozenset({"dict"})),
    "no_sync": frozenset({"no_sync"}), "ZeroRedundancyOptimizer": frozenset({"zero"}),
}  # fmt: skip
_EQUAL_SAMPLERS = frozenset({"DistributedSampler", "DistributedBatchSampler", "RandomSampler", "SequentialSampler"})
_PARALLEL_GROUP = re.compile(r"get_(?:tensor_model|pipeline_model|model|context|expert_model)_parallel_group")
"""Megatron's groups: the ranks are cut into several of each."""


def class_tags(frame: Frame, owner: Class) -> frozenset[str]:
    """What objects of a class of the project are besides, by the bases of the class."""
    bases = {base.rpartition(".")[2] for base in frame.analysis.project.lineage(owner)}
    tags = {_WRAPPERS[base] for base in bases & _WRAPPERS.keys()}
    if "DataLoader" in bases:
        tags.add("loader")
    if "Metric" in bases:
        tags.add("metric")
    if bases & {"Thread", "Timer"}:
        tags.add("thread")
    return frozenset(tags)


def special(frame: Frame, made: Call) -> Value | None:
    """Calls that the engine has to know by name: None for all others."""
    if wrapped := made.receiver.tags & {"ddp", "fsdp", "deepspeed"} if made.receiver_text else frozenset():
        if made.name in {"__call__", "forward"}:
            return _forward(frame, made, min(wrapped))
    elif isinstance(made.node.func, ast.Name):
        local = frame.lookup(made.node.func.id)
        if local is not None and (tags := local.tags & {"ddp", "fsdp", "deepspeed"}) and "itself" not in local.tags:
            return _forward(frame, made, min(tags))
    if isinstance(made.node.func, ast.Attribute) and made.receiver_text:
        held = _attribute_value(frame, made)
        if held is not None and (tags := held.tags & {"ddp", "fsdp", "deepspeed"}):
            return _forward(frame, made, min(tags))
    if isinstance(made.node.func, ast.Subscript) and (tags := made.receiver.tags & {"ddp", "fsdp", "deepspeed"}):
        return _forward(frame, made, min(tags))
    optimized(frame, made)
    seeding(frame, made)
    for known in (_collection, _object, _changed, _wrapped, spawned, clipped, tensor, _unwrapped, arranged):
        value = known(frame, made)
        if value is not None:
            return value
    return None


def _attribute_value(frame: Frame, made: Call) -> Value | None:
    """`self.model(x)`: the value of the attribute that is called."""
    if not made.receiver_text.startswith("self") or frame.owner is None:
        return None
    text = f"{made.receiver_text}.{made.name}"
    if text in frame.paths:
        return frame.paths[text]
    if made.receiver_text == "self" and made.name not in frame.owner.methods:
        return frame.analysis.attribute(frame.owner, made.name)
    return None


def _forward(frame: Frame, made: Call, tag: str) -> Value:
    event = Op("forward", "collective", frame.function, made.node.lineno, tag=tag)
    frame.emit(event)
    frame.analysis.notes.operations += 1
    taint = union(*(value.taint for value in made.args), *(value.taint for value in made.keywords.values()))
    if not any(isinstance(origin, Origin) for origin in taint):
        taint |= {Origin("data", "the model's output on this rank's data", *frame.at(made.node))}
    return Value(taint, tags=frozenset({"wrapped_output"}))


def _collection(frame: Frame, made: Call) -> Value | None:
    """Loaders, samplers and what divides data."""
    if made.name == "DataLoader" or made.name.endswith("DataLoader"):
        _in_workers(frame, made)
        return _loader(made)
    if made.name in _EQUAL_SAMPLERS:
        return Value(tags=frozenset({"equal sampler"}))
    if made.name == "islice" and len(made.args) > 1:
        first, bounds = made.args[0], union(*(value.taint for value in made.args[1:]))
        return Value(first.taint, bounds, first.tags)
    if made.name in {"array_split", "tensor_split"}:
        taint = union(made.receiver.taint, *(value.taint for value in made.args))
        return Value(taint, tags=frozenset({"uneven parts"}))
    if made.name == "split_between_processes" and "apply_padding" not in made.keywords:
        origin = Origin("rank", "split_between_processes() gives some ranks one more", *frame.at(made.node))
        return Value(frozenset({origin}), frozenset({origin}))
    return None


def _object(frame: Frame, made: Call) -> Value | None:
    """Objects of libraries that are known by what made them."""
    if made.name in _KINDS:
        return Value(tags=_KINDS[made.name] | (mixed(made.args).tags & {NODE_LOCAL}))
    if _PARALLEL_GROUP.fullmatch(made.name) and frame.analysis.project.find(made.full) is None:
        return Value(tags=frozenset({"group", ONE_OF_SEVERAL}))
    if made.full in rank_sources("local directory"):
        return Value(tags=frozenset({NODE_LOCAL}))
    if made.name == "Trainer" and made.full.split(".")[0] in _TRAINERS:
        return Value(tags=frozenset({_TRAINERS[made.full.split(".")[0]]}))
    if made.full in _GENERATORS:
        return _generator(frame, made)
    if made.name == "manual_seed" and made.args and not made.full.startswith(("torch.", "pl.", "lightning.")):
        return _seeded(frame, made)
    if made.full.startswith("torchmetrics.") and made.name[:1].isupper():
        return Value(tags=_metric(made))
    return Value(tags=frozenset({"device number"})) if made.full in _DEVICE_NUMBERS else None


def _changed(frame: Frame, made: Call) -> Value | None:
    """`dataclasses.replace(x, a=…)`: an object like x, with other fields."""
    if made.full != "dataclasses.replace" or not made.args or not isinstance(owner := made.args[0].thing, Class):
        return None
    for name, value in made.keywords.items():
        frame.analysis.gather(owner, name, value)
    return made.args[0]


def _wrapped(frame: Frame, made: Call) -> Value | None:
    """What trainers prepare and shard."""
    if made.name == "fully_shard" and made.node.args:
        return sharded(frame, made)
    if made.name == "prepare" and (is_a(frame, made, "accelerator")):
        return _prepared(frame, made)
    return _deepspeed(frame, made) if made.full == "deepspeed.initialize" else None


_DEVICE_NUMBERS = frozenset(
    {"torch.cuda.current_device", "torch.accelerator.current_device_index", "torch.xpu.current_device"}
)


def _metric(made: Call) -> frozenset[str]:
    """A metric of torchmetrics: its compute() gathers over the ranks, unless it was told not to."""
    told = made.keywords.get("sync_on_compute", UNKNOWN)
    alone = told.ranks is not None and told.ranks[0] is False
    alone = alone or any("local metric" in value.tags for value in made.args)
    return frozenset({"local metric" if alone else "metric"})


_TRAINERS = {"lightning": "trainer", "pytorch_lightning": "trainer", "transformers": "hf_trainer", "trl": "hf_trainer"}


_GENERATORS = frozenset({
    "random.Random", "random.SystemRandom", "numpy.random.default_rng", "numpy.random.RandomState",
    "numpy.random.Generator",
})  # fmt: skip


def _generator(frame: Frame, made: Call) -> Value:
    """A generator of random numbers: its own seed decides, or each process draws for itself."""
    if made.args or made.keywords:
        return Value(union(*(value.taint for value in (*made.args, *made.keywords.values()))))
    return Value(frozenset({Origin("random", f"{made.full}() without a seed", *frame.at(made.node))}))


def _seeded(frame: Frame, made: Call) -> Value:
    """`torch.Generator().manual_seed(seed + rank)`: every rank draws other numbers."""
    if not made.args[0].taint:
        return UNKNOWN
    own = Value(frozenset({Origin("random", "a generator that every rank seeds for itself", *frame.at(made.node))}))
    if isinstance(made.node.func, ast.Attribute):
        frame.put_into(made.node.func.value, own)
    return own


def _in_workers(frame: Frame, made: Call) -> None:
    """Functions that worker processes of a loader call, ahead of the training loop and in an order of their own."""
    workers = made.keywords.get("num_workers", UNKNOWN)
    if "num_workers" not in made.keywords or (workers.ranks is not None and not workers.ranks[0]):
        return
    for name in ("collate_fn", "worker_init_fn"):
        frame.analysis.later("callback", made.keywords.get(name, UNKNOWN).thing, frame.function, made.node.lineno)
    dataset = made.args[0] if made.args else made.keywords.get("dataset", UNKNOWN)
    if isinstance(dataset.thing, Class) and (item := frame.analysis.project.method(dataset.thing, "__getitem__")):
        frame.analysis.later("callback", item, frame.function, made.node.lineno)


def _loader(made: Call) -> Value:
    """Batches: their number follows the sampler, or the data set where there is none."""
    sampler = made.keywords.get("sampler") or made.keywords.get("batch_sampler")
    dataset = made.args[0] if made.args else made.keywords.get("dataset", UNKNOWN)
    if sampler is not None and ("equal sampler" in sampler.tags or rounds(sampler)):
        length = CLEAN
    else:
        length = union(dataset.length, sampler.length if sampler is not None else CLEAN)
        if isinstance(dataset.thing, Class) and rounds(dataset):
            length = CLEAN
    return Value(CLEAN, length, frozenset({"loader"}))


def _prepared(frame: Frame, made: Call) -> Value:
    frame.emit(Op("prepare", "collective", frame.function, made.node.lineno, tag="accelerator"))
    frame.analysis.notes.operations += 1
    items = []
    for number, value in enumerate(made.args):
        name = last_name(made.node.args[number]).lower()
        if "loader" in value.tags or "loader" in name:
            items.append(Value(tags=frozenset({"loader"})))
        elif "opt" in name or "sched" in name:
            items.append(UNKNOWN)
        else:
            items.append(value._replace(tags=value.tags | {"ddp", "prepared"}, thing=None))
    return items[0] if len(items) == 1 else Value(items=tuple(items))


def _deepspeed(frame: Frame, made: Call) -> Value:
    frame.emit(Op("initialize", "collective", frame.function, made.node.lineno, tag="deepspeed"))
    frame.analysis.notes.operations += 1
    engine = Value(tags=frozenset({"deepspeed"}))
    return Value(items=(engine, UNKNOWN, Value(tags=frozenset({"loader"})), UNKNOWN))


def _unwrapped(_frame: Frame, made: Call) -> Value | None:
    if made.name in {"unwrap_model", "unwrap", "get_base_model"} and made.args:
        return made.args[0]._replace(tags=made.args[0].tags - {"ddp", "fsdp", "deepspeed"})
    return None


def group_value(made: Call, *, inside_loop: bool = False) -> Value:
    """A group: for each rank its members, where the list of ranks is known."""
    if made.name in {"new_subgroups", "new_subgroups_by_enumeration"}:
        return Value(items=(Value(tags=frozenset({"group", ONE_OF_SEVERAL})), UNKNOWN))
    if made.name in {"init_device_mesh", "DeviceMesh"}:
        shape = made.keywords.get("mesh_shape") or (made.args[1] if len(made.args) > 1 else UNKNOWN)
        whole = shape.items is not None and len(shape.items) == 1
        return Value(tags=frozenset({"group", WORLD_GROUP}) if whole else frozenset({"mesh"}))
    ranks = made.args[0] if made.args else made.keywords.get("ranks", UNKNOWN)
    members = per_rank(list, ranks) if ranks.ranks is not None and ranks.ranks[0] is not None else None
    if not made.args and "ranks" not in made.keywords:
        members = (list(range(WORLD)),) * WORLD
    several = {ONE_OF_SEVERAL} if members is None and inside_loop else set()
    return Value(tags=frozenset({"group"} | several), ranks=members)


def result(_frame: Frame, made: Call, spec: Collective) -> Value:
    """What a collective returns."""
    tag = _WRAPPERS.get(made.name)
    if tag is not None:
        return Value(tags=frozenset({tag}))
    if "result" in spec.uniform:
        return Value(tags=frozenset({"agreed"}))
    if spec.call in {"backward", "step"}:
        return UNKNOWN
    if spec.call == "forward":
        return Value(tags=frozenset({"wrapped_output"}))
    return UNKNOWN
