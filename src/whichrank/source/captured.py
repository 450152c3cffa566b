"""Environments of processes as captured: `env` output, /proc/PID/environ, env files, one rank or many."""

from __future__ import annotations

import re

from whichrank.model.evidence import Ref
from whichrank.records.settings import Assignment, SettingsFile

KIND = "environment"
QUOTE_LIMIT = 300
# `srun -l env` writes "3: NAME=VALUE", other launchers "[rank3]: " or "[3] ".
_LINE = re.compile(r"(?:\[?(?:rank|Rank)?[ ]?(\d{1,6})\]?:?[ ]+|\[(?:rank)?(\d{1,6})\]:?[ ]*)?([A-Za-z_]\w*)=(.*)")
_RANK_IN_NAME = re.compile(r"rank[_.-]?(\d{1,6})", re.IGNORECASE)


def read(data: str, label: str) -> SettingsFile:
    """The variables of each rank in the text; a capture without rank marks is one process."""
    out = SettingsFile.empty(label, KIND)
    separator = "\0" if "\0" in data else "\n"
    entries: list[tuple[str | None, str, str, str]] = []
    for number, line in enumerate(data.split(separator), 1):
        match = _LINE.fullmatch(line.rstrip("\r"))
        if match:
            locator = f"line {number}" if separator == "\n" else f"entry {number}"
            entries.append((match[1] or match[2], match[3], match[4], locator))
    ranks = _ranks(entries, label)
    hosts = _hosts(entries)
    for mark, name, value, locator in entries:
        rank = ranks.get(mark)
        ref = Ref(label, locator, f"{name}={value}"[:QUOTE_LIMIT], rank=rank, host=hosts.get(mark))
        scope = label if mark is None else f"{label}:{mark}"
        out.assignments.append(Assignment(name, value, ref, scope, "process"))
    return out


def looks_like(text: str) -> bool:
    """Only NAME=VALUE lines (values of several lines allowed here and there), and no program among them."""
    lines = [line for line in text.split("\n")[:2000] if line.strip() and not line.startswith("#")]
    named = sum(1 for line in lines if _LINE.fullmatch(line.rstrip("\r")))
    return bool(lines) and named >= max(1, 0.9 * len(lines)) and not any("$" in line for line in lines[:200])


def _ranks(entries: list[tuple[str | None, str, str, str]], label: str) -> dict[str | None, int]:
    """Mark of the lines -> global rank: by the variable RANK, else by the mark, else by the file's name."""
    ranks: dict[str | None, int] = {}
    for mark in {entry[0] for entry in entries}:
        if mark is not None:
            ranks[mark] = int(mark)
        elif match := _RANK_IN_NAME.search(label):
            ranks[mark] = int(match[1])
    for wanted in ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "RANK"):
        for mark, name, value, _ in entries:
            if name == wanted and value.isascii() and value.isdigit() and len(value) < 8:
                ranks[mark] = int(value)
    return ranks


def _hosts(entries: list[tuple[str | None, str, str, str]]) -> dict[str | None, str]:
    hosts: dict[str | None, str] = {}
    for wanted in ("HOSTNAME", "SLURMD_NODENAME"):
        hosts.update({mark: value for mark, name, value, _ in entries if name == wanted and value})
    return hosts
