"""The flight-recorder attribution of nvidia-resiliency-ext.

Its wheels are for Linux with glibc 2.39 and Python 3.12, and bring compiled parts that this analysis does not use:
`tools/nvrx.sh` unpacks one beside the environment, and the analysis runs on any machine.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from whichrank.lab.peers._dumps import Warm, laid_out, last_line
from whichrank.lab.truth import Answer

NAME = "nvidia-resiliency-ext"
MODULE = "nvidia_resiliency_ext.attribution.trace_analyzer.fr_attribution"
PREFIX = "_dump_"


UNPACKED = Path(sys.prefix) / "nvrx"
_TOOL = Warm(MODULE, ("nvidia_resiliency_ext.attribution.base",), str(UNPACKED))
_FILE = Path(*MODULE.split(".")).with_suffix(".py")


def lacking() -> str:
    try:
        there = (UNPACKED / _FILE).is_file() or importlib.util.find_spec(MODULE) is not None
    except ImportError:
        there = False
    return "" if there else "nvidia_resiliency_ext.attribution is not installed (tools/nvrx.sh gets it)"


def version() -> str:
    names = sorted(path.name for path in UNPACKED.glob("nvidia_resiliency_ext-*.dist-info"))
    return names[-1].split("-")[1].removesuffix(".dist") if names else _installed()


def _installed() -> str:
    from importlib import metadata

    try:
        return metadata.version("nvidia-resiliency-ext")
    except metadata.PackageNotFoundError:
        return ""


def answer(folder: Path) -> Answer:
    """The missing ranks of its table, all groups together; it names no cause."""
    with laid_out(folder, PREFIX) as dumps:
        if dumps is None:
            return Answer(None, (), "there are no dumps")
        code, text = _TOOL.ask("--fr-path", str(dumps), "-p", f"{PREFIX}*", "--emit-stdout")
    if code != 0:
        return Answer(None, (), last_line(text))
    rows = [line.split("|") for line in text.splitlines() if line.count("|") >= 5]
    ranks = {int(word) for row in rows for word in row[-1].replace(" ", "").split(",") if word.isdigit()}
    return Answer("collective-desync" if ranks else "healthy", tuple(sorted(ranks)), last_line(text))
