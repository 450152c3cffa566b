"""NCCL's RAS report: the ranks that it sets apart from the rest of a communicator."""

from __future__ import annotations

import re
from pathlib import Path

from whichrank.evidence.readers import nccl_ras
from whichrank.lab.truth import Answer

NAME = "nccl-ras"
_OUTLIER = re.compile(r"^[ \t]{0,40}Ranks? ([\d, ]+) (?:has|have) launched up to operation \d+", re.MULTILINE)
_LOST = re.compile(r"^[ \t]{0,40}Rank (\d+) -- GPU .* (?:missing|unresponsive|dead)", re.MULTILINE | re.IGNORECASE)


def lacking() -> str:
    return ""


def version() -> str:
    return "as recorded with the case"


def answer(folder: Path) -> Answer:
    """Outliers of the report's own words; nothing where there is no report or it calls nobody."""
    for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
        if not path.is_file() or path.suffix == ".json":
            continue
        with path.open("rb") as stream:
            head = stream.read(4096)
        if not nccl_ras.sniff(head, path.name):
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        ranks = {int(word) for m in _OUTLIER.finditer(text) for word in re.findall(r"\d+", m.group(1))}
        ranks |= {int(match.group(1)) for match in _LOST.finditer(text)}
        return Answer("collective-desync" if ranks else "healthy", tuple(sorted(ranks)), "outliers of its report")
    return Answer(None, (), "there is no report")
