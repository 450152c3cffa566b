"""Containers that several pods run: what must differ from pod to pod, and what must not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from whichrank.records.settings import UNKNOWN, Clash
from whichrank.source.formats.yaml_tree import TEMPLATE, Node
from whichrank.source.places.own_values import NAMES_ITSELF, OWN_HOST, SAME_HOST
from whichrank.source.shell.embedded import Given

if TYPE_CHECKING:
    from whichrank.source.formats.manifest import Manifest

_COUNTS = ("replicas", "completions", "parallelism", "size", "numNodes", "minReplicas")
_DEPTH = 24
_ADDRESSES = frozenset({"MASTER_ADDR", "NCCL_COMM_ID", "PET_MASTER_ADDR", "PET_RDZV_ENDPOINT", "RDZV_ENDPOINT"})
_FIRST = "Give the name of the first pod, by its headless service: NAME-0.SERVICE."


def check(manifest: Manifest, container: Node, given: list[Given]) -> None:
    """Addresses and names of hosts that a container of several pods is given."""
    if manifest.form != "kubernetes" or not _several(manifest.root, manifest.kind, container):
        return
    together = manifest.kind == "PyTorchJob" or _joins(container, given)
    for item in given:
        found = None
        if item.own and item.name in _ADDRESSES and together and _taken_from(item.name, container):
            found = Clash(item.name, manifest.ref(item.line), NAMES_ITSELF, _FIRST)
        elif item.name == "NCCL_HOSTID" and not item.own and item.text and UNKNOWN not in item.text and together:
            found = Clash(item.name, manifest.ref(item.line), SAME_HOST, OWN_HOST)
        if found is not None and all((c.name, c.ref) != (found.name, found.ref) for c in manifest.out.clashes):
            manifest.out.clashes.append(found)


def _several(root: Node, kind: str, container: Node) -> bool:
    """More than one pod runs this container, or a template says how many."""
    if kind in {"RayCluster", "RayJob", "RayService", "MPIJob"}:
        return False  # their operators tell the workers where to meet
    return kind == "DaemonSet" or any(many for one, many in _containers(root, kind, False, 0) if one is container)


def _containers(node: Node, kind: str, many: bool, depth: int) -> Iterator[tuple[Node, bool]]:
    if depth > _DEPTH:
        return
    groups = node.get("leaderWorkerTemplate") is not None  # its replicas are jobs, each with pods of its own
    for key, value in node.entries():
        if key.text in _COUNTS and value.kind == "scalar" and not groups:
            many = many or TEMPLATE in value.text or (value.text.isdecimal() and int(value.text[:6]) > 1)
    if kind == "PyTorchJob" and node.get("Master") is not None and node.get("Worker") is not None:
        many = True
    for key, value in node.entries():
        if key.text == "containers":
            yield from ((item, many) for item in value.items)
        elif value.kind == "map":
            first = kind == "PyTorchJob" and key.text == "Master"
            yield from _containers(value, kind, many and not first, depth + 1)
        else:
            yield from (found for item in value.items for found in _containers(item, kind, many, depth + 1))


_SIZES = re.compile(r"(?:PET_)?NNODES|NUM_NODES|N_NODES|NUM_MACHINES|WORLD_SIZE|(?:PET_)?NODE_RANK|RANK")
_ONE_POD = re.compile(r"--standalone\b|--nnodes[= ]\s*[\"']?1[\"'\s\\]")


def _joins(container: Node, given: list[Given]) -> bool:
    """The pods make one job together: the launcher counts hosts, or something else tells ranks their number."""
    text = f"{_command(container)} "
    if _ONE_POD.search(text):
        return False
    if any(_SIZES.fullmatch(item.name) and item.text != "1" for item in given):
        return True
    return not re.search(r"\b(?:torchrun|torch\.distributed\.\w+|accelerate|deepspeed)\b", text) or bool(
        re.search(r"--(?:nnodes|num[-_]machines|num[-_]nodes|node[-_]rank|machine[-_]rank)\b", text)
    )


def _taken_from(name: str, container: Node) -> bool:
    """Nothing in the command tells another address."""
    text = _command(container)
    told = re.search(r"--(?:master[-_]addr|rdzv[-_]endpoint|main[-_]process[-_]ip)\b", text)
    again = re.search(rf"\b{name}=", text)
    return not again and (not told or bool(re.search(rf"\$[({{]?{name}\b", text)))


def _command(container: Node) -> str:
    parts = [part for name in ("command", "args") if (part := container.get(name)) is not None]
    return " ".join(text for part in parts for text in (part.text, *(item.text for item in part.items)))
