"""The topology that NCCL dumps (NCCL_TOPO_DUMP_FILE) and the graphs that it chose (NCCL_GRAPH_DUMP_FILE)."""

from __future__ import annotations

from itertools import combinations
from xml.etree import ElementTree as ET

from msgspec import Struct

from whichrank.model.errors import UnreadableError
from whichrank.records.topology import HostTopology

_MOST = 16 << 20


class Graph(Struct, frozen=True):
    """One way that NCCL found to run collectives."""

    pattern: str
    channels: int
    speed_intra: float
    speed_inter: float
    type_intra: str
    type_inter: str


_PATTERNS = {"1": "tree (balanced)", "2": "tree (split)", "3": "tree", "4": "ring", "5": "NVLS", "6": "CollNet"}
"""ncclTopoPattern of src/include/graph.h."""


def _parsed(text: str, label: str) -> ET.Element:
    # Entities could blow up the text; a dump has none.
    if len(text) > _MOST or "<!ENTITY" in text or "<!DOCTYPE" in text:
        raise UnreadableError(f"{label} is too large or not what NCCL writes")
    try:
        return ET.fromstring(text)  # noqa: S314 - without entities
    except ET.ParseError as error:
        raise UnreadableError(f"{label} is cut or no XML: {error}") from error


def read_topology(text: str, label: str) -> HostTopology:
    """Paths between all GPUs and adapters, by where they sit in the tree."""
    root = _parsed(text, label)
    gpus: dict[int, list[ET.Element]] = {}
    nics: dict[str, list[ET.Element]] = {}
    gdr: dict[str, bool] = {}
    linked: set[int] = set()
    targets: dict[int, set[str]] = {}
    busids: dict[str, int] = {}

    def walk(element: ET.Element, above: list[ET.Element]) -> None:
        for child in element:
            if child.tag == "gpu":
                number = int(child.get("dev", "-1"))
                gpus[number] = above
                busids[(above[-1].get("busid") or "").lower() if above else ""] = number
                targets[number] = {(link.get("target") or "").lower() for link in child.iter("nvlink")}
            elif child.tag == "net":
                name = child.get("name") or f"net{child.get('dev')}"
                nics[name] = [a for a in above if a.tag != "nic"]
                gdr[name] = child.get("gdr") == "1"
            walk(child, [*above, child] if child.tag in ("pci", "cpu", "nic") else above)

    walk(root, [])
    between = {}
    for a, b in combinations(sorted(gpus), 2):
        direct = any(busids.get(t) == b for t in targets[a]) or any(busids.get(t) == a for t in targets[b])
        # All links of both lead to switches: an NVSwitch joins them.
        switched = bool(targets[a]) and bool(targets[b]) and not {busids.get(t) for t in targets[a]} & set(gpus)
        between[a, b] = "NVL" if direct or switched else _path(gpus[a], gpus[b])
        linked |= {a, b} if between[a, b] == "NVL" else set()
    paths = {(gpu, nic): _path(above, nics[nic]) for gpu, above in gpus.items() for nic in nics}
    return HostTopology(tuple(sorted(gpus)), tuple(nics), paths, between, gdr, label)


def _path(a: list[ET.Element], b: list[ET.Element]) -> str:
    """How far up the tree both meet."""
    shared = [x for x, y in zip(a, b, strict=False) if x is y]
    switches = [x for x in shared if x.tag == "pci"]
    if switches:
        # The device's own <pci> is the last one above it: PIX means that both hang directly below one switch.
        direct = all(len(side) - len(shared) <= 1 for side in (a, b))
        return "PIX" if direct else "PXB"
    return "PHB" if any(x.tag == "cpu" for x in shared) else "SYS"


def read_graphs(text: str, label: str) -> list[Graph]:
    """Those that have channels."""
    found = []
    for graph in _parsed(text, label).iter("graph"):
        channels = int(graph.get("nchannels", "0"))
        if channels:
            found.append(
                Graph(
                    _PATTERNS.get(graph.get("pattern", ""), graph.get("pattern", "?")), channels,
                    float(graph.get("speedintra", "0")), float(graph.get("speedinter", "0")),
                    graph.get("typeintra", ""), graph.get("typeinter", ""),
                )
            )  # fmt: skip
    return found
