"""How often findings of each grade and kind were right, from cases whose truth is known: the table of model/grades.py.

tools/calibration.py FOLDER-OR-ARCHIVE…     (one folder per case, with the evidence and its truth.yaml)
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.lab import truth
from whichrank.lab.scoreboard import unpacked
from whichrank.model.grades import Grade, Kind, confidence

PRIOR, WORTH = {Grade.HINTS: 0.5, Grade.SUPPORTS: 0.75, Grade.PROVES: 0.9}, 10
"""What a grade is taken for before anything was counted, and as how many cases that counts."""


def rooted(corpus: Path) -> Iterator[tuple[Kind, Grade, bool]]:
    """Of every case with a finding as its verdict: the cell, and whether it was right."""
    with unpacked(corpus) as folder:
        for file in sorted(folder.rglob("truth.yaml")):
            known, told = truth.read(file), diagnose([file.parent], jobs=1)
            if told.findings and told.findings[0].cause == told.verdict.cause:
                root = told.findings[0]
                yield root.kind, root.grade, root.cause in (known.cause, *known.accept)


def main(corpora: list[str]) -> None:
    seen: Counter[tuple[Kind, Grade]] = Counter()
    right: Counter[tuple[Kind, Grade]] = Counter()
    for corpus in corpora:
        for kind, grade, good in rooted(Path(corpus)):
            seen[kind, grade] += 1
            right[kind, grade] += good
    for kind, grade in sorted(seen):
        n, good = seen[kind, grade], right[kind, grade]
        smoothed = (good + WORTH * PRIOR[grade]) / (n + WORTH)
        table = confidence(grade, kind)
        print(f"{kind:10}{grade.word:10}{good:4} of {n:4}   smoothed {smoothed:.2f}   table {table:.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
