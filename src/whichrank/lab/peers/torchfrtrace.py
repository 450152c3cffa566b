"""torch's own analyser of flight-recorder dumps."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from whichrank.lab.peers._dumps import Warm, laid_out, last_line
from whichrank.lab.truth import Answer

NAME = "torchfrtrace"
MODULE = "torch.distributed.flight_recorder.fr_trace"
PREFIX = "fr_"
_TOOL = Warm(MODULE, ("torch.distributed.flight_recorder.components.fr_logger", "torch.distributed"))

_MISSING = re.compile(r"missing ranks: \{([\d, ]+)\}")
_CULPRIT = re.compile(r"Culprit rank (\d+); Error type: (\w+)")
_KINDS = {
    "COLLECTIVE_TYPE_MISMATCH": "collective-order",
    "SIZE_OR_SYNTAX_MISMATCH": "size-mismatch",
    "COLLECTIVE_DTYPE_MISMATCH": "dtype-mismatch",
}


def lacking() -> str:
    # Found without importing torch, which takes seconds.
    torch = importlib.util.find_spec("torch")
    places = torch.submodule_search_locations if torch and torch.submodule_search_locations else []
    there = any((Path(place) / "distributed" / "flight_recorder" / "fr_trace.py").exists() for place in places)
    return "" if there else "this torch has no torch.distributed.flight_recorder (2.10 or newer has it)"


def version() -> str:
    from importlib import metadata

    return f"torch {metadata.version('torch')}"


def answer(folder: Path) -> Answer:
    """The ranks of its first finding: that is where a reader of its output begins."""
    with laid_out(folder, PREFIX) as dumps:
        if dumps is None:
            return Answer(None, (), "there are no dumps")
        code, text = _TOOL.ask(str(dumps), "-p", PREFIX, "--allow-incomplete-ranks")
    found = sorted([*_MISSING.finditer(text), *_CULPRIT.finditer(text)], key=lambda match: match.start())
    if not found:
        failed = code != 0 or "Traceback" in text
        return Answer(None if failed else "healthy", (), last_line(text) if failed else "it says nothing")
    first = found[0]
    ranks = tuple(sorted(int(word) for word in re.findall(r"\d+", first.group(1))))
    kind = _KINDS.get(first.group(2)) if first.re is _CULPRIT else "collective-desync"
    return Answer(kind, ranks, first.group(0))
