"""Variables that schedulers and launchers set for a job, read under a name that none of them sets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from whichrank.facts.tables import rows
from whichrank.facts.variables.near_names import nearest
from whichrank.model.evidence import Ref
from whichrank.records.settings import Clash

_READ = re.compile(
    r"\$\{?([A-Z][A-Z0-9]{1,15}_[A-Z0-9_]{2,50})\b|(?:environ(?:\.get\(|\[)|getenv\()\s{0,4}[\"']([A-Z][A-Z0-9_]{3,60})[\"']"
)
_SET = re.compile(
    r"(?<![\w${])([A-Z][A-Z0-9_]{3,60})[\"']?[^\S\n]{0,8}(?:[:+?]?=|:)|\bread\s(?:-\w\s)?([A-Z][A-Z0-9_]{3,60})"
)
_MOST = 2_000
_LONG = 5
"""Letters of a beginning that is known also with a letter wrong; of a shorter one two may have changed places."""
# Chunks are of OpenPBS and PBS Professional; Torque has no select=.
_CHUNKS = re.compile(r"(?<=^#PBS -l )select(?==)", re.MULTILINE)
_INSTEAD = {"PBS_ARRAYID": "Write PBS_ARRAY_INDEX."}
_COUNT = "Count the lines of $PBS_NODEFILE."


@cache
def known() -> dict[str, str]:
    """Name -> who sets it."""
    return {row["name"]: row["launcher"] for row in rows("variables/launchers.csv")}


@cache
def _families() -> frozenset[str]:
    return frozenset(name.partition("_")[0] for name in known())


def misspelt(text: str, label: str) -> Iterator[Clash]:
    """`$SKPILOT_NUM_NODES`, `$SLURM_NODE_ID`: empty wherever it runs."""
    seen: set[str] = set()
    chunks = _CHUNKS.search(text)
    own = {name for match in _SET.finditer(text) for name in match.groups() if name}
    for number, row in enumerate(text.split("\n"), 1):
        if row.lstrip().startswith(("#", "//")) or len(seen) > _MOST:
            continue
        for found in _READ.finditer(row):
            name = found[1] or found[2]
            if name in seen:
                continue
            seen.add(name)
            if name in own:
                continue
            if known().get(name) == "Torque" and chunks and not row[found.end() :].startswith((":-", "-", ":=")):
                why = f"Torque alone sets it; the PBS that takes {chunks.group()} does not, so that it is empty"
                yield Clash(name, Ref(label, f"line {number}", row.strip()[:300]), why, _INSTEAD.get(name, _COUNT))
            real = _meant(name)
            if real:
                why = f"{known()[real]} sets no such variable, so that it is empty; the name is {real}"
                yield Clash(name, Ref(label, f"line {number}", row.strip()[:300]), why, f"Write {real}.")


def _meant(name: str) -> str:
    if name in known():
        return ""
    first = name.partition("_")[0]
    own = first in _families()
    real = nearest(name, 1 if own else 2, known)
    begins = real.partition("_")[0]
    if not own and len(begins) < _LONG and sorted(begins) != sorted(first):
        return ""  # K8S_VERSION is not PBS_VERSION
    # A name with a word more or less may be one that is not listed.
    return real if real and abs(len(real.replace("_", "")) - len(name.replace("_", ""))) <= (1 if own else 2) else ""
