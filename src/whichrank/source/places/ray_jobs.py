"""Jobs of Ray: the entry point is the driver, the ranks are workers that Ray starts, also on other hosts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from whichrank.facts.variables.environment import counts
from whichrank.records.settings import Clash
from whichrank.source import workload
from whichrank.source.formats.yaml_tree import Node

if TYPE_CHECKING:
    from whichrank.source.formats.manifest import Manifest
    from whichrank.source.shell.words import Field

DRIVER = "in front of the entry point it is the driver's alone: Ray starts the workers, and they get env_vars"
IN_ENV_VARS = "Put it into env_vars of the runtime environment."
_LAUNCHES = re.compile(r"\b(?:torchrun|torch\.distributed\.(?:run|launch)|accelerate|deepspeed|mpirun)\b")
_SETS = re.compile(r"(?:^|[\s;&('\"])(?:export\s+|env\s+)?([A-Z][A-Z0-9_]{2,80})=")
_PROGRAM = re.compile(r"(?:^|[\s/])(?:python[\d.]{0,5}|uv|poetry)(?=\s)")
_LONGEST = 20_000


def check(manifest: Manifest) -> None:
    """The entry point of a job against what its workers get and where they run."""
    node = _entry_point(manifest)
    if node is None:
        return
    if manifest.kind == "RayJob":
        manifest.script("entrypoint", node, manifest.group, [])
    text, line = manifest.body(node)
    text = text[:_LONGEST]
    if not _LAUNCHES.search(text):
        program = _PROGRAM.search(text)
        for match in _SETS.finditer(text, 0, program.start() + 1 if program else len(text)):
            if counts(match[1]) and not _given(manifest, match[1]):
                manifest.lost(match[1], line + text.count("\n", 0, match.start(1)), DRIVER, IN_ENV_VARS)
    for clash in _sizes(manifest, text, line):
        if clash not in manifest.out.clashes:
            manifest.out.clashes.append(clash)


def of_driver(words: Sequence[Field]) -> Iterator[Field]:
    """NAME=VALUE in front of the program of `ray job submit -- …`, with the name as its text."""
    if any(_LAUNCHES.search(word.text) for word in words):
        return
    for word in words:
        name, equals, _ = word.text.partition("=")
        if not equals and word.text != "env":
            return
        if counts(name):
            yield word._replace(text=name)


def _entry_point(manifest: Manifest) -> Node | None:
    spec = manifest.root.get("spec") if manifest.kind == "RayJob" else manifest.root
    found = (
        spec.get("entrypoint") if spec is not None and (manifest.kind == "RayJob" or manifest.form == "ray") else None
    )
    return found if found is not None and found.kind == "scalar" else None


def _given(manifest: Manifest, name: str) -> bool:
    """Workers have it from elsewhere: env_vars, or their containers."""
    return any(a.name == name and a.how == "manifest" for a in manifest.out.assignments)


class _Pods(NamedTuple):
    """Pods of one kind that have GPUs."""

    number: int
    gpus: int
    line: int


def _pods(cluster: Node) -> Iterator[_Pods | None]:
    """Those of a cluster; None where nobody can tell how many."""
    scales = cluster.get("enableInTreeAutoscaling")
    groups, head = cluster.get("workerGroupSpecs"), cluster.get("headGroupSpec")
    for group in groups.items if groups is not None else ():
        container = next(workload.containers(group), None)
        each = workload.gpus(container) if container is not None else None
        if each is None:
            continue
        wanted, least, most, hosts = (
            _number(group, name) for name in ("replicas", "minReplicas", "maxReplicas", "numOfHosts")
        )
        if scales is not None and scales.text.lower() == "true":
            number = most
        else:  # the operator keeps it between the two: GetWorkerGroupDesiredReplicas of KubeRay
            number = max(wanted or 0, least or 0) if most is None else min(max(wanted or 0, least or 0), most)
        line = next(key.line for key, _ in group.entries())
        yield _Pods(number * (hosts or 1), each.number, line) if number else None
    container = next(workload.containers(head), None) if head is not None else None
    started = head.get("rayStartParams") if head is not None else None
    told = started.get("num-gpus") if started is not None else None
    if container is not None and (each := workload.gpus(container)) and (told is None or told.text != "0"):
        yield _Pods(1, each.number, each.line)


def _number(node: Node, name: str) -> int | None:
    value = node.get(name)
    return int(value.text) if value is not None and re.fullmatch(r"\d{1,5}", value.text) else None


_WORKERS = re.compile(r"--num[-_](?:ray[-_]|train[-_]|training[-_])?workers[= ]\s{0,8}(\d{1,5})(?!\S)")
_EACH = re.compile(r"--(?:num[-_])?gpus[-_]per[-_]worker[= ]\s{0,8}(\d{1,3})(?!\S)")
_USE_GPU = re.compile(r"--use[-_]gpus?(?:[= ](?:[Tt]rue|1))?(?!\S)")
_NODES = re.compile(r"(?<!\S)((?:--|\+{0,2}[\w.]{0,60}\.)(?:num[-_]nodes|nnodes))[= ]\s{0,8}(\d{1,5})(?!\S)")
_PER_NODE = re.compile(
    r"(?<!\S)(?:--|\+{0,2}[\w.]{0,60}\.)(?:num[-_]|n[-_])?(?:gpus|devices)[-_]per[-_]node[= ]\s{0,8}(\d{1,3})(?!\S)"
)


def _sizes(manifest: Manifest, text: str, line: int) -> Iterator[Clash]:
    """Workers and their GPUs, or hosts and theirs, against the pods of the cluster."""
    spec = manifest.root.get("spec")
    cluster = spec.get("rayClusterSpec", "rayClusterConfig") if spec is not None else None
    pods = list(_pods(cluster)) if cluster is not None and not manifest.templated else []
    known = [each for each in pods if each is not None]
    if not known or len(known) < len(pods):
        return
    workers, each = _WORKERS.search(text), _EACH.search(text)
    nodes, per_node = _NODES.search(text), _PER_NODE.search(text)
    if workers and (each or _USE_GPU.search(text)):
        found, name, wanted = workers, workers.group().split("=")[0].split()[0], int(workers[1])
        size = max(int(each[1]) if each else 1, 1)
        what = f"{wanted} workers of {size} GPU{'s' if size > 1 else ''} each"
    elif nodes and per_node:
        found, name, wanted, size = nodes, nodes[1].lstrip("+"), int(nodes[2]), max(int(per_node[1]), 1)
        what = f"{wanted} hosts with {size} GPU{'s' if size > 1 else ''} each"
    else:
        return
    places = sum(pod.number * (pod.gpus // size) for pod in known)
    if wanted > places:
        has = " and ".join(f"{pod.number} pod{'s' if pod.number > 1 else ''} with {pod.gpus} GPUs" for pod in known)
        why = f"{what} don't fit into {has}: the job waits for resources forever"
        at = manifest.ref(line + text.count("\n", 0, found.start()))
        yield Clash(name, at, why, "Start fewer, or raise replicas.", tuple(manifest.ref(pod.line) for pod in known))
