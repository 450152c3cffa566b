"""Which number each AMD GPU of a host has, with its bus address or its number in messages: `rocm-smi`, with and without
`--showbus`, `amd-smi list`, `rocminfo`."""

from __future__ import annotations

import re

from whichrank.evidence.text.host_of_path import host_of_path
from whichrank.evidence.text.plain_lines import plain_lines
from whichrank.evidence.text.text_file import is_text
from whichrank.model.contracts import Item, Reading
from whichrank.model.evidence import Ref
from whichrank.records.hardware import GpuState

NAME = "rocm_smi"
BESIDE = True

_BUS = r"([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
_ROW = re.compile(rf"\s{{0,8}}GPU\[(\d{{1,3}})\]\s{{0,8}}: PCI Bus: {_BUS}\s{{0,8}}$")
_NUMBER = re.compile(r"\s{0,8}GPU: (\d{1,3})\s{0,8}$")
_ADDRESS = re.compile(rf"\s{{0,16}}BDF: {_BUS}\s{{0,8}}$")
_CONCISE = re.compile(r"(\d{1,3})\s{1,12}(\d{1,4})\s{1,12}0x[0-9a-fA-F]{4},")
_NODE = re.compile(r"\s{1,8}Node:\s{1,40}(\d{1,4})\s{0,8}$")
_IS_GPU = re.compile(r"\s{1,8}Device Type:\s{1,40}GPU\s{0,8}$")
_MOST = 4096


def sniff(head: bytes, name: str) -> bool:  # noqa: ARG001
    """Whether the beginning lists GPUs with their addresses, or with the numbers that messages have."""
    listed = b": PCI Bus: " in head or (b"BDF: " in head and b"GPU: " in head)
    return is_text(head) and (listed or (b"Device  Node" in head) or (b"Agent 1" in head and b"Device Type:" in head))


def read(item: Item) -> Reading:
    """One `GpuState` for each GPU."""
    host, number, node = host_of_path(item.label), "", ""
    found: list[GpuState] = []
    for at, line in plain_lines(item):
        text = line[:200]
        ref = Ref(item.label, f"line {at}", text.strip(), None, host)
        if match := _NUMBER.match(text):
            number = match[1]
        elif match := _NODE.match(text):
            node = match[1]
        told = None
        if match := _ROW.match(text):
            told = GpuState(ref, host, index=int(match[1]), bus_id=match[2], line=at)
        elif number and (match := _ADDRESS.match(text)):
            told = GpuState(ref, host, index=int(number), bus_id=match[1], line=at)
        elif match := _CONCISE.match(text):
            told = GpuState(ref, host, index=int(match[1]), node=int(match[2]), line=at)
        elif node and _IS_GPU.match(text):  # rocminfo lists them in the order of their numbers
            told = GpuState(ref, host, index=len(found), node=int(node), line=at)
        if told is not None and len(found) < _MOST:
            found.append(told)
    return Reading([*found], "complete") if found else Reading([], "ignored", "no list of GPUs")
