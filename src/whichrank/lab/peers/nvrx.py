"""The flight-recorder attribution of nvidia-resiliency-ext."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from whichrank.lab.peers._dumps import laid_out, last_line, run
from whichrank.lab.truth import Answer

NAME = "nvidia-resiliency-ext"
MODULE = "nvidia_resiliency_ext.attribution.trace_analyzer.fr_attribution"
PREFIX = "_dump_"


def lacking() -> str:
    try:
        there = importlib.util.find_spec(MODULE) is not None
    except ImportError:
        there = False
    return "" if there else "nvidia_resiliency_ext.attribution is not installed"


def answer(folder: Path) -> Answer:
    """The missing ranks of its table, all groups together; it names no cause."""
    with laid_out(folder, PREFIX) as dumps:
        if dumps is None:
            return Answer(None, (), "there are no dumps")
        code, text = run(["-m", MODULE, "--fr-path", str(dumps), "-p", f"{PREFIX}*", "--emit-stdout"])
    if code != 0:
        return Answer(None, (), last_line(text))
    rows = [line.split("|") for line in text.splitlines() if line.count("|") >= 5]
    ranks = {int(word) for row in rows for word in row[-1].replace(" ", "").split(",") if word.isdigit()}
    return Answer("collective-desync" if ranks else "healthy", tuple(sorted(ranks)), last_line(text))
