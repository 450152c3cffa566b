"""Hostfiles of DeepSpeed and Open MPI: a host and its slots on each line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from whichrank.model.evidence import Ref
from whichrank.records.settings import Clash, SettingsFile

KIND = "hostfile"
QUOTE_LIMIT = 300
ROW = re.compile(r"\s*([\w.-]+)\s+slots\s*=\s*(\d+)(?:\s.*)?", re.ASCII)


def looks_like(text: str) -> bool:
    """Nothing but hosts with slots, empty lines and comments."""
    rows = [row for row in text.split("\n") if row.split("#")[0].strip()]
    return bool(rows) and all(ROW.fullmatch(row.split("#")[0].rstrip()) for row in rows)


def read(text: str, label: str) -> SettingsFile:
    out = SettingsFile.empty(label, KIND)
    lines = text.split("\n")
    of_deepspeed = bool(re.search(r"deepspeed|(?:^|[._-])ds(?:[._-]|$)", PurePosixPath(label).name))
    for host, first, second in twice(text):
        ref, also = (Ref(label, f"line {at}", lines[at - 1].strip()[:QUOTE_LIMIT]) for at in (second, first))
        out.clashes.append(clash(host, ref, also, of_deepspeed=of_deepspeed))
    return out


def twice(text: str) -> Iterator[tuple[str, int, int]]:
    """Hosts that stand there again, with the line of the first and of the second entry."""
    seen: dict[str, int] = {}
    for number, row in enumerate(text.split("\n"), 1):
        match = ROW.fullmatch(row.split("#")[0].rstrip())
        if match and seen.setdefault(match[1], number) != number:
            yield match[1], seen[match[1]], number


def clash(host: str, ref: Ref, also: Ref, *, of_deepspeed: bool) -> Clash:
    """DeepSpeed refuses it; Open MPI adds the slots up, which few people mean."""
    why = "the host stands there twice: DeepSpeed refuses such a file"
    if not of_deepspeed:
        why += ", and Open MPI adds the slots up"
    return Clash(host, ref, why, "Keep one line for each host.", (also,), "warning" if of_deepspeed else "info")
