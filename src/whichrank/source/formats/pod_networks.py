"""Interfaces of a pod: eth0, which every container runtime makes (unless the pod is on the host's network), and those
that Multus makes of the pod's annotation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from whichrank.model.evidence import Ref
from whichrank.records.settings import UNKNOWN, Clash
from whichrank.source.formats.yaml_tree import TEMPLATE, Node
from whichrank.source.places.container_interfaces import OF_HOSTS, VARIABLES
from whichrank.source.shell.embedded import Given

if TYPE_CHECKING:
    from whichrank.source.formats.manifest import Manifest

_ANNOTATION = "k8s.v1.cni.cncf.io/networks"


_PLAIN = frozenset({"cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "amd.com/gpu"})
_OF_NETWORKS = re.compile(r"network|cni|multus|interface|sriov|rdma", re.IGNORECASE)


class Networks(NamedTuple):
    """The interfaces that a pod has, and the line that says so."""

    names: frozenset[str]
    line: int
    said: str = "by its network annotation"
    sure: bool = True
    """False where nothing names them: an operator of the cluster may add others."""
    who: str = "pod"


def of(pod: Node) -> Networks | None:
    """A pod or its template: the annotation names networks, each with its interface or as net1, net2 and so on."""
    metadata, spec = pod.get("metadata"), pod.get("spec")
    annotations = metadata.get("annotations") if metadata is not None else None
    said = annotations.get(_ANNOTATION) if annotations is not None else None
    shares = spec.get("hostNetwork") if spec is not None else None
    if said is None or said.kind != "scalar" or TEMPLATE in said.text or (shares and shares.text.lower() == "true"):
        return None
    names = _names(said.text)
    return Networks(frozenset({"eth0", "lo", *names}), said.line) if names else None


def plain(pod: Node) -> Networks | None:
    """A pod that asks for nothing but CPUs, memory and GPUs, and that no annotation attaches to another network."""
    metadata, spec = pod.get("metadata"), pod.get("spec")
    annotations = metadata.get("annotations") if metadata is not None else None
    shares = spec.get("hostNetwork") if spec is not None else None
    containers = spec.get("containers") if spec is not None else None
    if spec is None or containers is None or (shares is not None and shares.text.lower() != "false"):
        return None
    if annotations is not None and (annotations.kind != "map" or any(map(_attaches, annotations.entries()))):
        return None
    for container in containers.items:
        resources = container.get("resources")
        limits = [part for _, part in resources.entries()] if resources is not None else []
        if any(key.text not in _PLAIN for part in limits for key, _ in part.entries()):
            return None
    return Networks(frozenset({"eth0", "lo"}), spec.line, "as it is not on the host's network", sure=False)


def _attaches(pair: tuple[Node, Node]) -> bool:
    return bool(_OF_NETWORKS.search(pair[0].text)) or TEMPLATE in pair[0].text + pair[1].text


def of_values(values: Node) -> Networks | None:
    """Values of a chart with the annotation of its pods, or that say that these have no other networks:
    `hostNetwork: false`, `podNetworks: []`."""
    shares = values.get("hostNetwork")
    for key, block in values.entries():
        said = block.get(_ANNOTATION) if re.fullmatch(r"\w{0,40}[aA]nnotations", key.text) else None
        if said is not None and said.kind == "scalar" and TEMPLATE not in said.text and _names(said.text):
            names = frozenset({"eth0", "lo", *_names(said.text)})
            return None if shares is not None and shares.text.lower() == "true" else Networks(names, said.line)
    if shares is None or shares.text.lower() != "false":
        return None
    others = [(key, value) for key, value in values.entries() if _OF_NETWORKS.search(key.text) and value is not shares]
    if not others or any(value.kind == "scalar" or value.items or value.pairs for _, value in others):
        return None
    return Networks(frozenset({"eth0", "lo"}), others[0][0].line, f"by {others[0][0].text}", sure=False)


def of_service(service: Node, root: Node) -> Networks | None:
    """A service of compose on networks of docker: eth0 and so on, one for each of them."""
    mode, networks = service.get("network_mode"), service.get("networks")
    if (mode is not None and mode.text != "bridge") or service.get("extends") is not None:
        return None
    named = networks is not None and any(each.get("interface_name") is not None for _, each in networks.entries())
    count = len(networks.items or networks.pairs) if networks is not None else 1
    if named or (networks is not None and _is_host(networks, root)):
        return None
    names = frozenset({"lo", *(f"eth{number}" for number in range(max(count, 1)))})
    return Networks(names, service.line, "as it is not on the host's network", sure=False, who="container")


def _is_host(networks: Node, root: Node) -> bool:
    """One of these is the host's own network under another name: `{external: true, name: host}`."""
    chosen = {item.text for item in networks.items} | {key.text for key, _ in networks.entries()}
    defined = root.get("networks")
    names = [(key.text, each.get("name")) for key, each in defined.entries()] if defined is not None else []
    return "host" in chosen or any(key in chosen and name is not None and name.text == "host" for key, name in names)


def _names(text: str) -> list[str]:
    given: list[object]
    if text.lstrip().startswith("["):
        try:
            items = json.loads(text)
        except ValueError:
            return []
        given = [item.get("interface") if isinstance(item, dict) else None for item in items]
    else:
        given = [item.partition("@")[2] or None for item in text.split(",") if item.strip()]
    return [str(name).strip() if name else f"net{index}" for index, name in enumerate(given, 1)]


def check(manifest: Manifest, given: list[Given]) -> None:
    """Interfaces that variables name, and those that the pod has."""
    if manifest.networks is not None:
        manifest.out.clashes += _absent(manifest.networks, given, manifest.ref)


def _absent(networks: Networks, given: list[Given], ref: Callable[[int], Ref]) -> Iterator[Clash]:
    """Variables that ask for an interface which the pod does not have."""
    for item in given:
        text = item.text
        if item.name not in VARIABLES or not text or UNKNOWN in text or "$" in text:
            continue
        if text.startswith("^"):
            yield from _all_excluded(networks, item, ref)
            continue
        if not networks.sure and not OF_HOSTS.match(text):
            continue
        exact = text.startswith("=") or item.name.startswith(("GLOO", "TP"))
        wanted = [name for name in re.split(r"[,\s]+", text.removeprefix("=")) if name]
        if not any(has == name if exact else has.startswith(name) for has in networks.names for name in wanted):
            why = f"the {networks.who} has {', '.join(sorted(networks.names - {'lo'}))} {networks.said}, and no {text}"
            fix = "Name one of these interfaces, or attach the network."
            yield Clash(item.name, ref(item.line), why, fix, (ref(networks.line),))


def _all_excluded(networks: Networks, item: Given, ref: Callable[[int], Ref]) -> Iterator[Clash]:
    """`^lo,eth`: names are prefixes, so that nothing is left."""
    exact, text = item.text.startswith("^="), item.text.removeprefix("^").removeprefix("=")
    names = [name for name in text.split(",") if name]
    if all(any(has == name if exact else has.startswith(name) for name in names) for has in networks.names):
        has = ", ".join(sorted(networks.names))
        why = f"it excludes {has}, and the {networks.who} has no other interface {networks.said}"
        fix = "Name the interface to use: =eth0."
        yield Clash(item.name, ref(item.line), why, fix, (ref(networks.line),))
