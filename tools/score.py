"""Diagnose every case that has a truth beside it, and count how often the answer is right.

A case is a folder with a `truth.yaml`. Folders may be given; otherwise the project's own samples and, where
it is there, the collection that the environment variable WHICHRANK_SHARED names.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import yaml

ROOT = Path(__file__).parent.parent
SHARED = Path(os.environ.get("WHICHRANK_SHARED", ROOT.parent / "shared"))
PATIENCE_S = 120


def answer(folder: Path) -> dict[str, Any]:
    """The verdict that the command gives, as a user would run it."""
    command = [sys.executable, "-c", "from whichrank.cli.main import main; main()"]
    command += ["diagnose", str(folder), "--format", "json", "--quiet"]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False)
    if not done.stdout:
        return {"cause": None, "culprits": {"ranks": []}, "category": done.stderr.decode()[-200:].strip()}
    verdict: dict[str, Any] = msgspec.json.decode(done.stdout)["verdict"]
    return verdict


def judged(truth: dict[str, Any], verdict: dict[str, Any]) -> tuple[bool, bool, bool]:
    """Whether the cause is right, the ranks are exact, and an innocent is accused."""
    named = set(verdict["culprits"]["ranks"])
    guilty = truth.get("culprit_ranks")
    right = verdict["cause"] in [truth.get("cause"), *truth.get("accept", [])]
    return right, guilty is None or named == set(guilty), guilty is not None and bool(named - set(guilty))


def main() -> int:
    given = [Path(argument) for argument in sys.argv[1:]] or [ROOT / "tests" / "samples", SHARED / "cases"]
    cases = sorted(file.parent for folder in given for file in folder.rglob("truth.yaml"))
    totals = [0, 0, 0]
    for folder in cases:
        truth = yaml.safe_load((folder / "truth.yaml").read_text(encoding="utf-8"))
        verdict = answer(folder)
        outcome = judged(truth, verdict)
        totals = [total + hit for total, hit in zip(totals, outcome, strict=True)]
        marks = ("cause" if outcome[0] else "CAUSE?", "ranks" if outcome[1] else "RANKS?")
        said = f"{verdict['category']}/{verdict['cause']} {verdict['culprits']['ranks']}"
        want = f"{truth.get('cause')} {truth.get('culprit_ranks')}"
        print(f"{' '.join(marks):15} {folder.parent.name}/{folder.name}: {said}; truth: {want}")
    cause, ranks, accused = totals
    print(f"{len(cases)} cases: cause right {cause}, ranks exact {ranks}, innocents accused {accused}")
    return 0 if cases else 3


if __name__ == "__main__":
    sys.exit(main())
