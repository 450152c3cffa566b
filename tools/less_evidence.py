"""What becomes of the verdict when a user has only part of the evidence: each recorded job with one kind of file
alone, and with one kind missing.

tools/less_evidence.py FOLDER [RESULTS.jsonl]     (one folder per job, with its truth.json)

Verdicts that are surer than 0.7 with the truth neither first nor listed are printed, and so is whoever is wrongly
accused.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from whichrank.flows.diagnose.pipeline import diagnose

_KINDS = {"dumps": r"fr_|rank_\d+(\.json)?$", "nccl": r"nccl", "stacks": r"stack", "output": r".*(out|err|log)$"}
_LEAST = 2
SURE = 0.7


def parts(case: Path) -> Iterator[tuple[str, list[Path]]]:
    """Each kind of file alone, and all files but that kind."""
    files = [path for path in case.iterdir() if path.name != "truth.json" and not path.is_dir()]
    kinds: dict[str, list[Path]] = {}
    for path in files:
        kind = next((k for k, name in _KINDS.items() if re.match(name, path.name)), "other")
        kinds.setdefault(kind, []).append(path)
    if len(kinds) >= _LEAST:
        for kind in kinds.keys() - {"other"}:
            yield f"only {kind}", kinds[kind]
            yield f"no {kind}", [path for path in files if path not in kinds[kind]]


def scored(case: Path) -> list[dict[str, Any]]:
    """One row per part: what was told of it, and whether that is right."""
    truth, rows = json.loads((case / "truth.json").read_text()), []
    right = {truth["cause"], *truth["accept"]}
    for part, files in parts(case):
        with tempfile.TemporaryDirectory() as folder:
            for file in files:
                shutil.copy(file, folder)
            told = diagnose([Path(folder)], jobs=1).verdict
        named, guilty = set(told.culprits.ranks), set(truth["culprit_ranks"]) | set(truth["candidates"])
        others = [other.cause for other in told.alternatives]
        rows.append(
            {
                "case": case.name,
                "part": part,
                "truth": truth["cause"],
                "guilty": truth["culprit_ranks"],
                "told": told.cause,
                "ranks": sorted(named),
                "sure": told.confidence,
                "others": others,
                "right": told.cause in right,
                "listed": bool(right & {told.cause, *others}),
                "exact": named == set(truth["culprit_ranks"]),
                "accused": bool(named - guilty),
            }
        )
    return rows


def main(words: list[str]) -> int:
    if not words:
        print(__doc__, file=sys.stderr)
        return 2
    cases = sorted(path for path in Path(words[0]).iterdir() if (path / "truth.json").is_file())
    with ProcessPoolExecutor() as pool:
        rows = [row for done in pool.map(scored, cases, chunksize=4) for row in done]
    if len(words) > 1:
        Path(words[1]).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    totals: dict[str, Counter[str]] = {}
    for row in rows:
        wrong = row["sure"] > SURE and not row["listed"]
        if wrong or row["accused"]:
            word = "sure and wrong" if wrong else "accused"
            print(
                f"{word}: {row['case']}, {row['part']}: {row['told']} {row['ranks']} {row['sure']:.2f} "
                f"{row['others']}; true is {row['truth']} {row['guilty']}"
            )
        for name in (row["part"], "all"):
            counts = totals.setdefault(name, Counter())
            counts.update(parts=1, sure_and_wrong=wrong, **{k: row[k] for k in ("right", "listed", "exact", "accused")})
    for name, counts in sorted(totals.items()):
        print(f"{name:14}" + "  ".join(f"{key} {n}" for key, n in counts.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
