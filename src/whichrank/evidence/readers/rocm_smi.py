"""Which number and bus address each AMD GPU of a host has: `rocm-smi --showbus`, `amd-smi list`."""

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
_MOST = 4096


def sniff(head: bytes, name: str) -> bool:  # noqa: ARG001
    """Whether the beginning lists GPUs with their addresses."""
    return is_text(head) and (b": PCI Bus: " in head or (b"BDF: " in head and b"GPU: " in head))


def read(item: Item) -> Reading:
    """One `GpuState` for each GPU."""
    host, number = host_of_path(item.label), ""
    found: list[GpuState] = []
    for at, line in plain_lines(item):
        text = line[:200]
        if match := _NUMBER.match(text):
            number = match[1]
        row = _ROW.match(text)
        told = (row[1], row[2]) if row else (number, match[1]) if number and (match := _ADDRESS.match(text)) else None
        if told and len(found) < _MOST:
            ref = Ref(item.label, f"line {at}", text.strip(), None, host)
            found.append(GpuState(ref, host, index=int(told[0]), bus_id=told[1], line=at))
    return Reading([*found], "complete") if found else Reading([], "ignored", "no list of GPUs")
