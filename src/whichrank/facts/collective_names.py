"""Collectives in torch's words, out of the names of kernels and annotations of every era."""

from __future__ import annotations

import re

_WORDS = (
    ("all_reduce", "all_?reduce"), ("all_gather", "all_?gather"), ("reduce_scatter", "reduce_?scatter"),
    ("all_to_all", "all_?to_?all"), ("send_recv", "send_?recv"), ("broadcast", "broadcast"), ("barrier", "barrier"),
    ("reduce", "reduce"), ("gather", "gather"), ("scatter", "scatter"), ("send", "send"), ("recv", "recv"),
)  # fmt: skip
_PATTERN = re.compile(r"(?<![a-z])_?(?:" + "|".join(f"({text})" for _, text in _WORDS) + ")", re.IGNORECASE)
_ERAS = re.compile(r"^(?:void )?(?:nccl|rccl|msccl)(?:Symk?)?(?:Dev)?(?:Kernel_?)?")


def operation(name: str) -> str:
    """The collective; "" where the name does not tell (RCCL's ncclDevKernel_Generic)."""
    found = _PATTERN.search(_ERAS.sub("", name.replace("-", "_")))
    return _WORDS[found.lastindex - 1][0] if found and found.lastindex else ""
