"""Labelled programs: `# wrong: cause|cause` marks the line to name, `# near` further lines that are right too."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from whichrank.flows.lint.check import CodeLint, lint

SAMPLES = Path(__file__).parents[1] / "samples" / "lint"
_WRONG = re.compile(r"#\s*wrong:\s*([\w|-]+)")
_NEAR = re.compile(r"#\s*near\b")


@dataclass
class Score:
    """Hits need the right line and cause; a finding on hygiene (no cause) is neither right nor wrong."""

    hits: int = 0
    misses: list[str] = field(default_factory=list)
    false: list[str] = field(default_factory=list)

    @property
    def recall(self) -> float:
        return self.hits / max(1, self.hits + len(self.misses))

    @property
    def precision(self) -> float:
        return self.hits / max(1, self.hits + len(self.false))


def labels(path: Path) -> tuple[list[tuple[int, set[str]]], set[int]]:
    wrong, near = [], set()
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if match := _WRONG.search(line):
            wrong.append((number, set(match[1].split("|"))))
        elif _NEAR.search(line):
            near.add(number)
    return wrong, near


def score_file(path: Path, score: Score, result: CodeLint | None = None) -> None:
    wrong, near = labels(path)
    result = result or lint([path])
    told = [(f.evidence[0].line, f.cause, f.code) for f in result.findings if f.cause]
    used: set[int] = set()
    for line, causes in wrong:
        lines = {line} | near
        fitting = (i for i, (at, cause, _) in enumerate(told) if i not in used and at in lines and cause in causes)
        hit = next(fitting, None)
        if hit is None:
            score.misses.append(f"{path.name}:{line} {'|'.join(sorted(causes))}")
        else:
            score.hits += 1
            used.add(hit)
    for i, (at, cause, code) in enumerate(told):
        if i not in used and not any(at in {line} | near and cause in causes for line, causes in wrong):
            score.false.append(f"{path.name}:{at} {code} {cause}")


def unpack(packed: Path, folder: Path) -> list[Path]:
    """The programs of a packed set, each below a line `=== name`."""
    parts = re.split(r"^=== (\S+)\n", packed.read_text(), flags=re.MULTILINE)
    written = []
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        (folder / name).write_text(text)
        written.append(folder / name)
    return written


def score_folder(folder: Path) -> Score:
    score = Score()
    for path in sorted(folder.glob("*.py")):
        score_file(path, score)
    return score
