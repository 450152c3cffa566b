"""Parts of a job that are not its ranks: init containers, containers beside the one with the GPUs, the head of a Ray
cluster, tasks of Determined without GPUs. Settings that only these have reach no rank."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from whichrank.facts.variables.environment import catalogue, is_read
from whichrank.model.evidence import Ref
from whichrank.records.settings import Lost
from whichrank.source import workload
from whichrank.source.formats import manifest_environment as variables
from whichrank.source.formats import manifest_forms as forms
from whichrank.source.formats.yaml_tree import Node

if TYPE_CHECKING:
    from whichrank.source.formats.manifest import Manifest
    from whichrank.source.shell.embedded import Given


def for_ranks_alone(name: str, text: str) -> bool:
    """A setting that a program which only looks on has no use for; a path may be one that it reads."""
    return name.startswith(("NCCL_", "TORCH_NCCL_", "TORCH_FR_")) and not text.startswith("/")


class Part(NamedTuple):
    """A container that runs no rank, and what to say of its settings."""

    why: str
    """Empty where ranks may have the same settings from elsewhere."""
    fix: str
    judged: bool = False
    """Its values are looked at as those of ranks are."""
    reads_files: bool = False
    """It may read what ranks write: the paths that it is given are its own, and so is what is not NCCL's."""

    def of_ranks(self, item: Given) -> bool:
        """The variable is of no use to the part itself."""
        return not self.reads_files or for_ranks_alone(item.name, item.text)


class Elsewhere(NamedTuple):
    """A variable that such a part has."""

    name: str
    ref: Ref
    scope: str
    part: Part


_SERVICE = Part(
    "only a service without GPUs has it, and the one that trains does not",
    "Move it to the service that trains.",
    reads_files=True,
)
_INIT = Part(
    "only an init container has it, and that ends before the training container starts", "Put it under containers."
)
_BESIDE = Part(
    "only a container without GPUs has it, and the one with the GPUs does not", "Move it to the container that trains."
)
_HEAD = Part(
    "only the head has it, which has no GPUs; ranks run in the pods of the workers, which don't get it",
    "Put it under workerGroupSpecs, or into env_vars of the runtime environment.",
    judged=True,
)
_SUBMITTER = Part(
    "only the pod that hands in the job has it; ranks run in the pods of the workers, which don't get it",
    "Put it under workerGroupSpecs, or into env_vars of the runtime environment.",
)
_CPU = Part(
    "tasks without GPUs alone get the list under cpu; those with GPUs get the one under cuda (or rocm)",
    "Put it under cuda.",
)
_BY_DEVICE = frozenset({"cpu", "cuda", "rocm", "gpu"})


def part_of(manifest: Manifest, container: Node, path: tuple[str, ...]) -> Part | None:
    """Which part of the job a container is; None for one that may be a rank."""
    if "initContainers" in path:
        return _INIT._replace(why="") if _runs_alone(container) or _is_another(manifest, container) else _INIT
    if manifest.form == "compose":
        return _SERVICE if _serves(manifest, container) else None
    if manifest.form != "kubernetes" or workload.gpus(container) is not None:
        return None
    if "submitterPodTemplate" in path:
        return _SUBMITTER
    head = "headGroupSpec" in path
    pod = manifest.pod.get("containers") if manifest.pod is not None else None
    ranks = [each for each in (_workers(manifest.root) if head else pod.items if pod else ()) if workload.gpus(each)]
    if not ranks:
        return None
    part = _HEAD if head else _BESIDE
    return part if all(each.get("envFrom") is None for each in ranks) else part._replace(why="")


_STARTS_RANKS = re.compile(r"\b(?:torchrun|torch\.distributed\.\w+|accelerate|deepspeed|mpirun|srun)\b")
_MAY_TRAIN = re.compile(
    rf"{_STARTS_RANKS.pattern}|train|worker|gloo|\beval|\binfer|\bdist\b|ray|launch|bench|\b(?:ba|z)?sh\b|sleep|\$",
    re.IGNORECASE,
)


def may_train(command: str) -> bool:
    """A command (or the name of an image) that may start ranks, as far as its words tell."""
    return bool(_MAY_TRAIN.search(command))


def _serves(manifest: Manifest, container: Node) -> bool:
    """A service of compose that has no GPU and starts no ranks, beside one that has GPUs and does."""
    by_hand = any(container.get(key) is not None for key in ("profiles", "stdin_open", "tty"))
    if by_hand or _has_gpus(container) or _is_rank(container):
        return False
    if manifest.trainers is None:
        manifest.trainers = _trainers(manifest.root)
    command = _command(container) or _of_image(container, manifest.trainers)
    return bool(manifest.trainers) and bool(command) and not may_train(command)


def _of_image(service: Node, trainers: frozenset[str]) -> str:
    """The image of a service, whose own program runs; empty for the image of the ranks, and for one built here."""
    image = service.get("image")
    return image.text if image is not None and image.text not in trainers and service.get("build") is None else ""


def _trainers(root: Node) -> frozenset[str]:
    """The images of the services that start ranks, if each of them has GPUs and all of its variables in this file."""
    services = root.get("services")
    others = [value for _, value in services.entries()] if services is not None else []
    ranks = [each for each in others if _STARTS_RANKS.search(_command(each)) or _is_rank(each)]
    known = all(_has_gpus(each) and each.get("env_file") is None for each in ranks)
    images = [image.text if (image := each.get("image")) is not None else "" for each in ranks]
    return frozenset(images if known else ())


def _is_rank(service: Node) -> bool:
    """It is given the number of a rank."""
    block = service.get("environment")
    names = [key.text for key, _ in block.entries()] if block is not None else []
    names += [item.text.partition("=")[0] for item in block.items] if block is not None else []
    return not {"RANK", "NODE_RANK", "WORLD_SIZE"}.isdisjoint(names)


def _has_gpus(service: Node) -> bool:
    deploy = service.get("deploy")
    resources = deploy.get("resources") if deploy is not None else None
    reserved = resources.get("reservations") if resources is not None else None
    asked = reserved.get("devices") if reserved is not None else None
    return asked is not None or any(
        service.get(key) is not None for key in ("gpus", "runtime", "devices", "device_requests")
    )


def _command(service: Node) -> str:
    parts = [part for name in ("entrypoint", "command") if (part := service.get(name)) is not None]
    return " ".join(text for part in parts for text in (part.text, *(item.text for item in part.items)))


def _given(container: Node) -> dict[str, str]:
    block = container.get("env")
    pairs = [(item.get("name"), item.get("value")) for item in block.items] if block is not None else []
    return {name.text: value.text for name, value in pairs if name is not None and value is not None}


def _is_another(manifest: Manifest, container: Node) -> bool:
    """A program of another image with settings of its own: one that tests, or one that has other values on purpose."""
    pod = manifest.pod.get("containers") if manifest.pod is not None else None
    image, ranks = container.get("image"), pod.items if pod is not None else []
    others = [there.text for each in ranks if (there := each.get("image")) is not None]
    if image is None or image.text in others:
        return False
    own = _given(container)
    differ = any(name in there and there[name] != own[name] for there in map(_given, ranks) for name in own)
    return differ or forms.measures(container)


def _runs_alone(container: Node) -> bool:
    """It is a program of one process with settings of its own: WORLD_SIZE=1, or the loopback address."""
    given = _given(container)
    return given.get("WORLD_SIZE") == "1" or given.get("MASTER_ADDR") in {"localhost", "127.0.0.1"}


def _workers(root: Node) -> Iterator[Node]:
    spec = root.get("spec")
    cluster = (spec.get("rayClusterSpec", "rayClusterConfig") or spec) if spec is not None else None
    groups = cluster.get("workerGroupSpecs") if cluster is not None else None
    for group in groups.items if groups is not None else ():
        yield from workload.containers(group)


def by_device(manifest: Manifest, block: Node) -> bool:
    """Determined: `environment_variables` with a list for each kind of device."""
    keys = {key.text for key, value in block.entries() if value.kind in {"list", "map"}}
    if block.kind != "map" or not keys or keys != {key.text for key, _ in block.entries()} or not keys <= _BY_DEVICE:
        return False
    for key, value in block.entries():
        scope = f"{manifest.group}:{value.line}"
        given = variables.block(manifest, value, scope, judged=key.text != "cpu")
        if key.text == "cpu":
            needs_gpus = [each for each in given if each.name.startswith(("NCCL_", "TORCH_NCCL_"))]
            manifest.elsewhere += [Elsewhere(each.name, manifest.ref(each.line), scope, _CPU) for each in needs_gpus]
    return True


def tell(manifest: Manifest) -> None:
    """What no rank gets."""
    apart = {each.scope for each in manifest.elsewhere}
    there = {a.name for a in manifest.out.assignments if a.scope not in apart}
    for name, ref, _, part in manifest.elsewhere:
        counts = is_read(name) if part.fix == _INIT.fix else name in catalogue()
        if counts and name not in there and part.why:
            manifest.out.lost.append(Lost(name, ref, part.why, part.fix))
