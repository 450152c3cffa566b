"""Which way traffic takes: GPU to adapter, what blocks a better one, and from a rank to its cable."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from whichrank.evidence.topology import fabric, nccl_dumps
from whichrank.model.contracts import Item
from whichrank.model.errors import UnreadableError
from whichrank.records.hardware import GpuTopology
from whichrank.records.topology import MEANING, PATHS, Cable, CableEnd, HostTopology, RankPlace

_GDR = ("LOC", "PIX", "PXB")
"""NCCL_NET_GDR_LEVEL is PXB by default: GPUDirect RDMA as long as no CPU is in the way."""
_P2P = ("LOC", "NVL", "PIX", "PXB")
_NAMED = 8


class Map(Struct):
    """What was read, and what it says."""

    hosts: list[HostTopology] = field(default_factory=list)
    graphs: list[nccl_dumps.Graph] = field(default_factory=list)
    cables: list[Cable] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)


def read(paths: Sequence[Path]) -> Map:
    """Topology and graph dumps of NCCL, `nvidia-smi topo -m`, ibnetdiscover, iblinkinfo; told apart by content."""
    found = Map()
    for path in paths:
        try:
            _read_one(path, path.read_text(encoding="utf-8", errors="replace"), found)
        except (OSError, UnreadableError) as error:
            found.unread[str(path)] = str(error)
    if not (found.hosts or found.graphs or found.cables):
        why = "; ".join(found.unread.values()) or "no file"
        raise UnreadableError(
            f"no topology in it: {why}", "Give NCCL_TOPO_DUMP_FILE, nvidia-smi topo -m or ibnetdiscover."
        )
    return found


def _read_one(path: Path, text: str, found: Map) -> None:
    if "<graphs" in text[:2000]:
        found.graphs += nccl_dumps.read_graphs(text, str(path))
    elif "<system" in text[:2000]:
        found.hosts.append(nccl_dumps.read_topology(text, str(path)))
    elif fabric.is_fabric(text):
        found.cables += [cable for cable in fabric.read(text) if cable not in found.cables]
    else:
        matrix = of_matrix(text.encode(), str(path))
        if matrix is None:
            raise UnreadableError(f"{path} holds no topology")
        found.hosts.append(matrix)


def of_matrix(said: bytes, label: str) -> HostTopology | None:
    """Out of `nvidia-smi topo -m`."""
    from whichrank.evidence.readers import nvidia_smi

    with tempfile.NamedTemporaryFile() as file:
        file.write(said)
        file.flush()
        records = nvidia_smi.read(Item(Path(file.name), label, len(said), 0)).records
    matrix = next((record for record in records if isinstance(record, GpuTopology)), None)
    if matrix is None:
        return None
    gpus = sorted(
        {int(name[3:]) for pair in matrix.cells for name in pair if name.startswith("GPU") and name[3:].isdigit()}
    )
    # Drivers before R470 name the columns by their adapters; later ones number them and have a legend.
    columns = [b for _, b in matrix.cells if not b.startswith("GPU")]
    nics = list(matrix.nics.values()) or list(dict.fromkeys(columns))
    named = dict(matrix.nics)
    paths = {
        (int(a[3:]), named.get(b, b)): _word(cell)
        for (a, b), cell in matrix.cells.items() if a.startswith("GPU") and not b.startswith("GPU")
    }  # fmt: skip
    between = {
        (int(a[3:]), int(b[3:])): _word(cell)
        for (a, b), cell in matrix.cells.items()
        if a.startswith("GPU") and b.startswith("GPU") and int(a[3:]) < int(b[3:])
    }  # fmt: skip
    return HostTopology(tuple(gpus), tuple(nics), paths, between, {}, label, matrix.host or "")


def of_probes(host: str, values: Mapping[str, Any]) -> HostTopology | None:
    """Out of what probes said of a host: the driver's matrix, else where GPUs and adapters sit in /sys."""
    matrix = (values.get("topology") or {}).get("matrix")
    found = of_matrix(str(matrix).encode(), "nvidia-smi topo -m") if matrix else None
    if found is None:
        found = of_sysfs((values.get("pci") or {}).get("devices") or [])
    return replace(found, host=host, source=f"{host}: {found.source}") if found is not None else None


def of_sysfs(devices: Sequence[Mapping[str, Any]]) -> HostTopology | None:
    """Out of the PCI tree alone; NVLink is not in it."""
    gpus = [device for device in devices if device.get("kind") == "gpu"]
    nics = {name: d for d in devices if d.get("kind") == "nic" for name in d.get("rdma") or d.get("net") or []}
    if not gpus:
        return None
    paths = {(n, name): _in_the_tree(gpu, nic) for n, gpu in enumerate(gpus) for name, nic in nics.items()}
    between = {(a, b): _in_the_tree(gpus[a], gpus[b]) for a, b in combinations(range(len(gpus)), 2)}
    return HostTopology(tuple(range(len(gpus))), tuple(nics), paths, between, {}, "/sys, NVLink not visible there")


def _in_the_tree(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """By the bridges above both; the first of them is the root port of a host bridge."""
    above = [list(device.get("path") or []) for device in (a, b)]
    shared = [x for x, y in zip(*above, strict=False) if x == y]
    if shared:
        return "PIX" if all(len(own) - len(shared) <= 1 for own in above) else "PXB"
    nodes = [device.get("numa_node") for device in (a, b)]
    if nodes[0] != nodes[1] or nodes[0] is None:
        return "SYS"
    roots = [str(device.get("root") or "") for device in (a, b)]
    return "PHB" if roots[0] and roots[0] == roots[1] else "NODE"


def _word(cell: str) -> str:
    return "NVL" if cell.startswith("NV") else cell


def adapter_of(host: HostTopology, gpu: int) -> tuple[str, str] | None:
    """The adapter that NCCL takes for a GPU: the nearest; equals are shared out in order."""
    ways = sorted((PATHS.index(path), nic) for (g, nic), path in host.paths.items() if g == gpu and path in PATHS)
    if not ways:
        return None
    best = [nic for rank, nic in ways if rank == ways[0][0]]
    position = [g for g in host.gpus if _nearest(host, g) == _nearest(host, gpu)].index(gpu)
    return best[position % len(best)], PATHS[ways[0][0]]


def _nearest(host: HostTopology, gpu: int) -> tuple[str, ...]:
    ways = [(PATHS.index(path), nic) for (g, nic), path in host.paths.items() if g == gpu and path in PATHS]
    nearest = min((rank for rank, _ in ways), default=0)
    return tuple(sorted(nic for rank, nic in ways if rank == nearest))


def places(found: Map, hosts: Sequence[str], ranks_per_host: int) -> list[RankPlace]:
    """From every rank to its cable, as launchers fill hosts one after the other."""
    return [
        place(found, number * ranks_per_host + local, host, local)
        for number, host in enumerate(hosts) for local in range(ranks_per_host)
    ]  # fmt: skip


def place(found: Map, rank: int, host: str, local: int) -> RankPlace:
    """A rank by its host and the number of its GPU there. One topology stands for all hosts where they are alike."""
    own = next((h for h in found.hosts if h.host == host), found.hosts[0] if found.hosts else None)
    gpu = own.gpus[local] if own is not None and local < len(own.gpus) else None
    way = adapter_of(own, gpu) if own is not None and gpu is not None else None
    adapter = way[0] if way else None
    return RankPlace(rank, host, gpu, adapter, way[1] if way else None, cable_of(found, host, adapter))


def cable_of(found: Map, host: str, adapter: str | None) -> Cable | None:
    """By the node description that hosts give themselves: `node01 mlx5_0`, or `node01 HCA-1` for the first one."""
    if adapter is None:
        return None
    device, _, port = adapter.partition(":")
    short = host.partition(".")[0]
    number = re.search(r"_(\d{1,3})$", device)
    called = {device, f"HCA-{int(number[1]) + 1}" if number else device}
    for cable in found.cables:
        for near, far in ((cable.a, cable.b), (cable.b, cable.a)):
            words = near.node.split()
            ours = not near.is_switch and words and words[0].partition(".")[0] == short and called & set(words[1:])
            if ours and (not port or near.port == int(port)):
                return Cable(near, far, cable.speed, cable.state, cable.trouble)
    return None


def notes(host: HostTopology) -> list[str]:
    """What stands in the way of a better path."""
    far: dict[tuple[str, str], list[int]] = {}
    blocked: dict[tuple[str, str], list[int]] = {}
    for gpu in host.gpus:
        nic, path = adapter_of(host, gpu) or ("", "")
        if nic and path not in _GDR:
            far.setdefault((nic, path), []).append(gpu)
        elif host.gdr.get(nic) is False:
            blocked.setdefault((nic, path), []).append(gpu)
    told = [
        f"{_gpus(gpus, 'reaches', 'reach')} {nic} over {MEANING[path]} ({path}): no GPUDirect RDMA by default; "
        "they share no PCIe switch"
        for (nic, path), gpus in far.items()
    ]
    told += [
        f"{_gpus(gpus, 'shares', 'share')} a PCIe switch with {nic} ({path}), but NCCL found no GPUDirect RDMA there: "
        "load nvidia_peermem or use DMA-BUF"
        for (nic, path), gpus in blocked.items()
    ]
    pairs: dict[str, list[str]] = {}
    for (a, b), path in host.between.items():
        if path not in _P2P:
            pairs.setdefault(path, []).append(f"{a}–{b}")
    for path, names in pairs.items():
        words = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more pairs" if len(names) > _NAMED else "")
        told.append(
            f"Copies between GPUs {words} cross {MEANING.get(path, path)} ({path}): they go through host memory"
        )
    return told


def _gpus(numbers: Sequence[int], one: str, many: str) -> str:
    if len(numbers) == 1:
        return f"GPU {numbers[0]} {one}"
    return f"GPUs {', '.join(map(str, numbers))} {many}"


def cable_notes(found: Map, hosts: Sequence[str]) -> list[str]:
    """Cables of these hosts that run below what they could, or below their neighbours."""
    short = {host.rpartition("@")[2].partition(".")[0] for host in hosts}
    own = [cable for cable in found.cables if {_host_of(cable.a), _host_of(cable.b)} & short]
    speeds = Counter(cable.speed for cable in own if cable.speed)
    usual, count = speeds.most_common(1)[0] if speeds else ("", 0)
    told = []
    for cable in own:
        name = f"{cable.a} – {cable.b}"
        if "Could be" in cable.trouble:
            told.append(f"{name} runs at {cable.speed}: {' '.join(cable.trouble.split())}")
        elif cable.speed and cable.speed != usual and count > len(own) / 2:
            told.append(f"{name} runs at {cable.speed}, most cables of these hosts at {usual}")
    return told


def cables_of(found: Map, host: str) -> list[str]:
    """All cables of a host, where nothing says which GPU uses which adapter."""
    short = host.rpartition("@")[2].partition(".")[0]
    told = []
    for cable in found.cables:
        for near, far in ((cable.a, cable.b), (cable.b, cable.a)):
            if _host_of(near) == short:
                told.append(f"{host} → {near.node.partition(' ')[2] or 'its adapter'} → {far}")
    return sorted(told)


def _host_of(end: CableEnd) -> str | None:
    """By the node description: `node01 mlx5_0`."""
    return None if end.is_switch else end.node.partition(" ")[0].partition(".")[0]


def drawing(host: HostTopology) -> list[str]:
    """A table GPU × GPU and adapter, as `nvidia-smi topo -m` has it, and the choice of NCCL beside."""
    among = set(host.between.values())
    # Eight GPUs that all reach each other alike would make the table too wide to read.
    alike = len(host.gpus) > 2 and len(among) == 1 and len(host.between) == len(host.gpus) * (len(host.gpus) - 1) // 2
    others = () if alike else host.gpus
    columns = [*(f"GPU{g}" for g in others), *host.nics]
    lines = ["      " + " ".join(f"{c:>4}" for c in columns) + "   NCCL takes"]
    for gpu in host.gpus:
        cells = ["X" if other == gpu else host.between.get((min(gpu, other), max(gpu, other)), "?") for other in others]
        cells += [host.paths.get((gpu, nic), "?") for nic in host.nics]
        way = adapter_of(host, gpu)
        drawn = " ".join(f"{cell:>{max(4, len(column))}}" for cell, column in zip(cells, columns, strict=True))
        lines.append(f"GPU{gpu:<3}" + drawn + (f"   {way[0]} ({way[1]})" if way else "   no adapter"))
    if alike:
        path = among.pop()
        lines.append(f"Every GPU reaches every other over {MEANING.get(path, path)} ({path}).")
    return lines
