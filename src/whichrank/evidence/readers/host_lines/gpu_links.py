"""Rows of a check before a job, one for each GPU, that say how many lanes of PCIe it has."""

from __future__ import annotations

import re

from whichrank.evidence.text.plain_lines import plain_lines
from whichrank.evidence.text.prefixes import listen
from whichrank.evidence.text.prefixes.clock import clock_of
from whichrank.model.contracts import Item
from whichrank.model.evidence import Ref
from whichrank.model.late_pattern import late
from whichrank.records.hardware import GpuState

_MOST_BYTES, _LONGEST, _MOST = 1 << 18, 400, 1 << 15
_MARK = re.compile(rb"(?i)\bpci-?e\b[^\n]{0,24}(?:\bx(?:1|2|4|8|16)\b|[^\n]{0,36}\b(?:width|lanes)[ :=])")
_LINK = r"(?:gen ?\.?(\d)[ ,/@-]{0,3})?x(1|2|4|8|16)\b"
_BEGINS = (
    r"(?:\[?((?=\S{0,62}[\d-])[A-Za-z][\w.-]{1,62})\]?[:,|]? )?.{0,80}?\bgpu[ _#:=]{0,2}(\d{1,2})\b.{0,160}?\bpci-?e\b"
)
_ROW = late(
    rf"{_BEGINS}[ :=]{{0,3}}{_LINK}(?:[ ,/(]{{1,3}}(?:max(?:imum)?|of|capable|cap)?[ :=]{{0,3}}{_LINK})?",
    re.IGNORECASE,
)
"""`node7 check gpu3 … pcie gen5 x4 (max gen5 x16)`, `[node7] GPU 3: PCIe x8/x16`."""
_WORDED = late(
    rf"{_BEGINS}[^\n]{{0,60}}?\b(?:width|lanes)[ :=]{{1,2}}x?(\d{{1,2}}) ?[(/,]? ?(?:max|of)[ :=]{{1,2}}"
    r"x?(\d{1,2})\b",
    re.IGNORECASE,
)
"""`node7 inventory: gpu 3 0000:5d:00.0 pcie gen 5 (max 5) width 4 (max 16)`, `GPU 3 PCIe lanes: x8 of x16`."""
_KEYS = ("pcie_gen", "pcie_width", "pcie_gen_max", "pcie_width_max")
_NO_HOST = late(r"(?i)(?:gpu|cuda|rank|local_rank|device)[ _:-]?\d*$")


def fits(head: bytes) -> bool:
    """Whether the beginning tells lanes of PCIe."""
    return b"x" in head and _MARK.search(head) is not None


def read(item: Item) -> list[GpuState]:
    """One `GpuState` per GPU; none where all GPUs, or all hosts, are alike: then they are built so."""
    found: dict[tuple[str, int], GpuState] = {}
    clock = clock_of(item)
    for number, line in plain_lines(item, _MOST_BYTES):
        low = line[:_LONGEST].lower()
        if "pci" not in low or "gpu" not in low or len(found) >= _MOST:
            continue
        voice = listen(line[:_LONGEST].encode(), clock)
        row = _ROW.match(voice.text) or _WORDED.match(voice.text)
        host = voice.host or (row[1] if row and row[1] and not _NO_HOST.match(row[1]) else None)
        if row is None or host is None:
            continue
        values = row.groups()[2:]
        told = zip(_KEYS if len(values) == len(_KEYS) else _KEYS[1::2], values, strict=True)
        ref = Ref(item.label, f"line {number}", line.strip()[:300], None, host)
        lanes = {key: value for key, value in told if value}
        found[host, int(row[2])] = GpuState(ref, host, index=int(row[2]), values=lanes, line=number)
    hosts: dict[str, set[tuple[int, str]]] = {}
    for (host, gpu), state in found.items():
        hosts.setdefault(host, set()).add((gpu, state.values["pcie_width"]))
    built_alike = len(hosts) > 1 and all(gpus == next(iter(hosts.values())) for gpus in hosts.values())
    differ = len({width for gpus in hosts.values() for _, width in gpus}) > 1
    return list(found.values()) if differ and not built_alike else []
