"""What a manifest says of its job as a whole: how many hosts, how many GPUs each, and whether it is production."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.source import memory
from whichrank.source.formats.yaml_tree import Node
from whichrank.source.shell.allocation import Allocation, Count

PRODUCTION = re.compile(r"(?:^|[-_./])prod(?:uction)?(?:[-_./]|$)", re.IGNORECASE)
_STAGE = re.compile(r"(?:[\w.-]+/)?(?:env|environment|stage|tier|deployment)", re.IGNORECASE)


def is_production(root: Node) -> bool:
    """By the namespace or a label such as `environment: production`."""
    metadata = root.get("metadata")
    if metadata is None:
        return False
    namespace, labels = metadata.get("namespace"), metadata.get("labels")
    if namespace is not None and PRODUCTION.search(namespace.text):
        return True
    return labels is not None and any(
        _STAGE.fullmatch(key.text) and PRODUCTION.search(value.text) for key, value in labels.entries()
    )


def hosts(root: Node, kind: str) -> Count | None:
    """How many pods run the same launch command."""
    spec = root.get("spec")
    batch = root.get("nodeProperties")  # AWS Batch: every node of the one range runs the command
    ranges = batch.get("nodeRangeProperties") if batch is not None else None
    if batch is not None and ranges is not None and len(ranges.items) == 1:
        return _count(batch, "numNodes")
    if spec is None:
        return None
    if kind == "PyTorchJob":
        replicas = spec.get("pytorchReplicaSpecs")
        if replicas is None or spec.get("elasticPolicy") is not None:
            return None
        counts = [_count(part, "replicas") or Count(1, part.line, "replicas") for _, part in replicas.entries()]
        lines = [count.line for count in counts]
        return Count(sum(count.number for count in counts), lines[-1], "replicas") if counts else None
    if kind == "StatefulSet":
        return _count(spec, "replicas")
    group, jobs = spec.get("leaderWorkerTemplate"), spec.get("replicatedJobs")
    if group is not None:  # a leader with a template of its own runs another command
        return _count(group, "size") if group.get("leaderTemplate") is None else None
    if jobs is not None:
        return _of_job_set(jobs.items)
    mode = spec.get("completionMode")
    return _at_once(spec) if kind == "Job" and mode is not None and mode.text == "Indexed" else None


def _at_once(job: Node) -> Count | None:
    """Pods of an indexed job that run together: `parallelism`, 1 by default (SetDefaults_Job of Kubernetes)."""
    pods, together = _count(job, "completions"), _count(job, "parallelism")
    if pods is None or (together is None and job.get("parallelism") is not None):
        return pods or together
    together = together or Count(1, pods.line, "parallelism (1 by default)")
    return pods if pods.number <= together.number else together


def _of_job_set(jobs: list[Node]) -> Count | None:
    """Pods of the one job that a JobSet consists of."""
    node: Node | None = jobs[0] if len(jobs) == 1 else None
    many = _count(node, "replicas") if node is not None else None
    for name in ("template", "spec"):
        node = node.get(name) if node is not None else None
    pods = (_at_once(node) or _count(node, "parallelism")) if node is not None else None
    return pods.times(many.number if many is not None else 1) if pods is not None else None


def gpus(container: Node) -> Count | None:
    """GPUs that a container gets: limits of Kubernetes, reservations of compose."""
    resources = container.get("resources")
    for part in ("limits", "requests"):
        wanted = resources.get(part) if resources is not None else None
        if wanted is not None and (count := _count(wanted, "nvidia.com/gpu", "amd.com/gpu")):
            return count
    required = container.get("resourceRequirements")  # ECS and AWS Batch
    for item in required.items if required is not None else ():
        kind = item.get("type")
        if kind is not None and kind.text == "GPU":
            return _count(item, "value")
    node: Node | None = container
    for name in ("deploy", "resources", "reservations", "devices"):
        node = node.get(name) if node is not None else None
    for device in node.items if node is not None else []:
        capabilities = device.get("capabilities")
        if capabilities is None or all(item.text != "gpu" for item in capabilities.items):
            continue
        chosen = device.get("device_ids")
        return Count(len(chosen.items), chosen.line, "device_ids") if chosen is not None else _count(device, "count")
    return None


def accelerators(resources: Node | None) -> Count | None:
    """SkyPilot: `H100:8`, `{H100: 8}`; a choice of several says nothing."""
    wanted = resources.get("accelerators") if resources is not None else None
    if wanted is None:
        return None
    pairs = list(wanted.entries())
    if wanted.kind == "map" and len(pairs) == 1 and re.fullmatch(r"[1-9]\d{0,2}", pairs[0][1].text):
        return Count(int(pairs[0][1].text), pairs[0][1].line, "accelerators")
    match = re.fullmatch(r"[\w.-]+:([1-9]\d{0,2})", wanted.text) if wanted.kind == "scalar" else None
    return Count(int(match[1]), wanted.line, f"accelerators: {wanted.text}") if match else None


def size(root: Node, kind: str, container: Node) -> Allocation:
    """What the container's command has, on all hosts of the job."""
    if kind != "MPIJob":
        return Allocation(hosts(root, kind), gpus(container))
    spec = root.get("spec")
    replicas = spec.get("mpiReplicaSpecs") if spec is not None else None
    workers = replicas.get("Worker") if replicas is not None else None
    if spec is None or workers is None:
        return Allocation()
    count = _count(workers, "replicas") or Count(1, workers.line, "replicas")
    each = _count(spec, "slotsPerWorker")
    slots = each.times(count.number)._replace(said=f"slotsPerWorker times {count.number} workers") if each else None
    inner = next(containers(workers), None)
    return Allocation(count, gpus(inner) if inner is not None else None, slots=slots)


def roles(root: Node, kind: str) -> Iterator[tuple[str, Node, Count, Node]]:
    """Of a job of Kubeflow: each role with its part of the file, how many pods it has, and its first container."""
    spec = root.get("spec")
    replicas = spec.get("pytorchReplicaSpecs") if spec is not None and kind == "PyTorchJob" else None
    for key, part in replicas.entries() if replicas is not None else ():
        for container in containers(part):
            yield key.text, part, _count(part, "replicas") or Count(1, part.line, "replicas"), container


def containers(part: Node) -> Iterator[Node]:
    """Those of a part that has a template of its pods."""
    node: Node | None = part
    for name in ("template", "spec", "containers"):
        node = node.get(name) if node is not None else None
    yield from node.items if node is not None else ()


_PROCESSES = ("nprocPerNode", "nProcPerNode")


def stated(root: Node, kind: str) -> Iterator[tuple[Count, Count]]:
    """Processes (or GPUs that Ray is told of) for each pod, and the GPUs that the pod has."""
    spec = root.get("spec")
    if spec is None:
        return
    elastic = spec.get("elasticPolicy")
    each = _count(spec, *_PROCESSES) or (_count(elastic, *_PROCESSES) if elastic is not None else None)
    for _, _, _, container in roles(root, kind):
        if each is not None and (found := gpus(container)) is not None:
            yield each, found
    trainer = spec.get("trainer") if kind == "TrainJob" else None
    if trainer is not None:
        told, has = _count(trainer, "numProcPerNode"), trainer.get("resourcesPerNode")
        there = gpus(Node("map", trainer.line, pairs=[(Node("scalar", has.line, "resources"), has)])) if has else None
        if told is not None and there is not None:
            yield told, there
    cluster = spec.get("rayClusterSpec") or spec
    groups = cluster.get("workerGroupSpecs") if kind.startswith("Ray") else None
    for group in groups.items if groups is not None else ():
        started = group.get("rayStartParams")
        told = _count(started, "num-gpus") if started is not None else None
        for inner in containers(group):
            if told is not None and (found := gpus(inner)) is not None:
                yield told, found


def limits(container: Node, volumes: Node | None, line: int = 0) -> tuple[Count | None, Count | None]:
    """Bytes of /dev/shm and of locked memory. With a line, what is not stated is the default of containers."""
    ipc, ulimits = container.get("ipc"), container.get("ulimits")
    shared = _size(container, "shm_size") if ipc is None or ipc.text == "private" else None
    if line and shared is None and ipc is None and container.get("shm_size") is None and not _mounted(container):
        shared = Count(memory.CONTAINER_DEFAULT, line, memory.SHARED_MEMORY, exact=False)
    lock = ulimits.get("memlock") if ulimits is not None else None
    locked = _size(lock, "soft") if lock is not None and lock.kind == "map" else None
    if lock is not None and lock.kind == "scalar" and ulimits is not None:
        locked = _size(ulimits, "memlock")
    if ipc is not None and ipc.text == "host":
        shared = Count(memory.PLENTY, ipc.line, "ipc")
    mounts = container.get("volumeMounts")
    for mount in mounts.items if mounts is not None else ():
        path, name = mount.get("mountPath"), mount.get("name")
        if path is None or name is None or path.text.rstrip("/") != memory.SHARED_MEMORY:
            continue
        for volume in volumes.items if volumes is not None else ():
            given, empty = volume.get("name"), volume.get("emptyDir")
            if given is not None and given.text == name.text and empty is not None:
                shared = _size(empty, "sizeLimit") or Count(memory.PLENTY, volume.line, "emptyDir")
    return shared, locked


def _mounted(container: Node) -> bool:
    """Something is mounted at /dev/shm: a volume, or `tmpfs: /dev/shm`."""
    mounts = [container.get(name) for name in ("volumeMounts", "tmpfs", "volumes", "mountPoints", "linuxParameters")]
    return any(
        memory.SHARED_MEMORY in text or "shared" in text.lower() for mount in mounts if mount for text in _texts(mount)
    )


def _texts(node: Node, depth: int = 0) -> Iterator[str]:
    yield node.text
    if depth < 6:
        for _, value in node.entries():
            yield from _texts(value, depth + 1)
        for item in node.items:
            yield from _texts(item, depth + 1)


# Seconds that each waits before it kills: documentation of Kubernetes (pod lifecycle) and of compose.
_POD_GRACE, _COMPOSE_GRACE = 30, 10


def grace(container: Node, pod: Node | None) -> Count | None:
    """Seconds between the request to stop and the kill."""
    if pod is not None:
        value, said, default = pod.get("terminationGracePeriodSeconds"), "terminationGracePeriodSeconds", _POD_GRACE
    else:
        value, said, default = container.get("stop_grace_period"), "stop_grace_period", _COMPOSE_GRACE
    if value is None:
        return Count(default, container.line, f"{said} (by default)", exact=False)
    found = memory.seconds(value.text)
    return Count(found, value.line, said) if found is not None else None


def _size(node: Node, name: str) -> Count | None:
    value = node.get(name)
    found = memory.size(value.text) if value is not None and value.kind == "scalar" else None
    return Count(found, value.line, name) if found is not None and value is not None else None


def _count(node: Node, *names: str) -> Count | None:
    value = node.get(*names)
    if value is None or not re.fullmatch(r"[1-9]\d{0,5}", value.text):
        return None
    key = next(key for key, found in node.entries() if found is value)
    return Count(int(value.text), value.line, key.text)
