"""Lines of a log that say how many lanes the PCIe link of a GPU has and could have, as inventories print them.

Read is `node7 inventory: gpu 3 0000:5d:00.0 pcie gen 5 (max 5) width 4 (max 16)`: the word PCIe, the GPU, and both
numbers. What says only one of the numbers, or no GPU, is no such line.
"""

from __future__ import annotations

import re

from whichrank.evidence.text.prefixes import clock_of, listen
from whichrank.evidence.text.text_file import is_text, lowered
from whichrank.model.contracts import Item, Reading
from whichrank.model.evidence import Ref
from whichrank.records.hardware import GpuState

NAME = "gpu_lines"
BESIDE = True

_SEARCHED, _LINE = 1 << 17, 400
_WIDTH = re.compile(
    r"(?i)\bpcie\b[^\n]{0,60}?\b(?:width|lanes)[ :=]{1,2}x?(\d{1,2}) ?[(/,]? ?(?:max|of)[ :=]{1,2}x?(\d{1,2})\b"
)
_GPU = re.compile(r"(?i)\bgpu[ :=#]{0,2}(\d{1,2})\b")
_BUS = re.compile(r"\b[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d\b")
_RANK = re.compile(r"(?i)\brank[ =:]{0,2}(\d{1,7})\b")


def sniff(head: bytes, name: str) -> bool:
    """Whether the beginning has such a line."""
    del name
    low = lowered(head)
    return is_text(head) and b"pcie" in low and _WIDTH.search(head.decode("utf-8", "replace")) is not None


def read(item: Item) -> Reading:
    """The GPUs with the lanes of their links, the last line of each."""
    clock = clock_of(item)
    found: dict[tuple[str | None, str], GpuState] = {}
    for number, line in enumerate(item.head(_SEARCHED).split(b"\n"), 1):
        text = line[:_LINE].decode("utf-8", "replace")
        width = _WIDTH.search(text)
        gpu, bus = _GPU.search(text), _BUS.search(text)
        if width is None or not (gpu or bus):
            continue
        voice, rank = listen(line[:_LINE], clock), _RANK.search(text)
        spoken = voice.rank if voice.rank is not None or rank is None else int(rank[1])
        found[voice.host, bus[0] if bus else gpu[1] if gpu else ""] = GpuState(
            Ref(item.label, f"line {number}", text.strip()[:200], spoken, voice.host),
            voice.host,
            index=int(gpu[1]) if gpu else None,
            bus_id=bus[0].lower() if bus else None,
            values={"pcie_width": width[1], "pcie_width_max": width[2]},
            line=number,
        )
    return Reading(list(found.values()), "complete") if found else Reading([], "ignored", "no links of GPUs")
