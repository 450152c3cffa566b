"""What NCCL itself says that it read: "NAME set by environment to VALUE" in its log."""

from __future__ import annotations

import re

from whichrank.model.evidence import Ref

QUOTE_LIMIT = 300
# ncclLoadParam and others (src/misc/param.cc, src/misc/socket.cc): with NCCL_DEBUG=INFO and subsystem ENV.
_SAID = re.compile(r"NCCL INFO ([A-Z][A-Z0-9_]*) set (?:by environment )?to ([^\n]*)")
_REFUSED = re.compile(r"NCCL INFO Invalid value ([^\n]*?) for (NCCL_\w+), using default")
_SPEAKS = " set by environment to "


def looks_like(text: str) -> bool:
    return "NCCL INFO" in text


def read(text: str, label: str) -> tuple[dict[str, tuple[str, Ref]], bool]:
    """Name -> value that was read, and whether the log speaks of the environment at all."""
    found: dict[str, tuple[str, Ref]] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if match := _SAID.search(line):
            value = match[2].strip().removesuffix(".")
            found.setdefault(match[1], (value, Ref(label, f"line {number}", line.strip()[:QUOTE_LIMIT])))
        elif match := _REFUSED.search(line):
            found.setdefault(match[2], ("", Ref(label, f"line {number}", line.strip()[:QUOTE_LIMIT])))
    return found, _SPEAKS in text
