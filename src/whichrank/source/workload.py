"""What a manifest says of its job as a whole: how many hosts, how many GPUs each, and whether it is production."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from whichrank.source.shell.allocation import Count

if TYPE_CHECKING:
    from whichrank.source.yaml_tree import Node

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
    mode = spec.get("completionMode")
    return _count(spec, "completions") if kind == "Job" and mode is not None and mode.text == "Indexed" else None


def gpus(container: Node) -> Count | None:
    """GPUs that a container gets: limits of Kubernetes, reservations of compose."""
    resources = container.get("resources")
    for part in ("limits", "requests"):
        wanted = resources.get(part) if resources is not None else None
        if wanted is not None and (count := _count(wanted, "nvidia.com/gpu", "amd.com/gpu")):
            return count
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


def _count(node: Node, *names: str) -> Count | None:
    value = node.get(*names)
    if value is None or not re.fullmatch(r"[1-9]\d{0,5}", value.text):
        return None
    key = next(key for key, found in node.entries() if found is value)
    return Count(int(value.text), value.line, key.text)
