"""Interfaces of a pod with more than one network, as Multus makes them of the pod's annotation."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from whichrank.model.evidence import Ref
from whichrank.records.settings import UNKNOWN, Clash
from whichrank.source.formats.yaml_tree import TEMPLATE, Node
from whichrank.source.shell.embedded import Given

_ANNOTATION = "k8s.v1.cni.cncf.io/networks"
_VARIABLES = frozenset({"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "NCCL_OOB_NET_IFNAME"})


class Networks(NamedTuple):
    """The interfaces that a pod has, and the line that says so."""

    names: frozenset[str]
    line: int


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


def absent(networks: Networks, given: list[Given], ref: Callable[[int], Ref]) -> Iterator[Clash]:
    """Variables that ask for an interface which the pod does not have."""
    for item in given:
        text = item.text
        if item.name not in _VARIABLES or not text or UNKNOWN in text or "$" in text or text.startswith("^"):
            continue
        exact = text.startswith("=") or item.name.startswith(("GLOO", "TP"))
        wanted = [name for name in re.split(r"[,\s]+", text.removeprefix("=")) if name]
        if not any(has == name if exact else has.startswith(name) for has in networks.names for name in wanted):
            why = f"the pod has {', '.join(sorted(networks.names - {'lo'}))} by its network annotation, and no {text}"
            fix = "Name one of these interfaces, or attach the network."
            yield Clash(item.name, ref(item.line), why, fix, (ref(networks.line),))
