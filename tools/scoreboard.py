"""docs/scoreboard.md from what `make score` wrote: tools/scoreboard.py SCORE [--blind FOLDER]... > docs/scoreboard.md

SCORE is the folder of `make score`: `score.json` of the drills, and one folder per corpus of recorded cases. What was
judged without anybody having seen it before is given by --blind, and stands first.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

US = "whichrank"
COLUMNS = (
    ("runs", "runs"), ("right_cause", "right cause"), ("exact_culprits", "exact culprits"),
    ("innocents_accused", "innocents accused"), ("alarm_s", "alarm s"), ("verdict_s", "verdict s"),
)  # fmt: skip
Score = dict[str, Any]
FAULTS = Path(__file__).parent.parent / "src" / "whichrank" / "lab" / "faults"


def page(drills: Score | None, recorded: dict[str, Score], blind: dict[str, Score]) -> Iterator[str]:
    """The whole document."""
    every = [score for score in (*blind.values(), drills, *recorded.values()) if score]
    version = every[0]["tool"]["version"] if every else "?"
    yield "# Scoreboard\n\n"
    yield f"Made by `tools/scoreboard.py` from `whichrank drill score` on {datetime.now(timezone.utc):%Y-%m-%d}: "
    yield f"{US} {version}, "
    yield f"torch {_version('torch')}. All tools get the same evidence.\n\n"
    yield "*Right cause*: the cause is the true one, or one that is right too. *Exact culprits*: exactly the ranks "
    yield "that are to blame, nobody else. *Innocents accused*: answers that name a rank that did nothing wrong.\n\n"
    yield "## Blind: nobody had seen these cases before\n\n"
    if not blind:
        yield "No blind round is part of this edition.\n\n"
    for name, score in blind.items():
        yield from _section(f"Blind: {name}", score, name)
    if recorded:
        yield "## Recorded cases\n\nReal failures that were recorded. They were at hand while rules were written, so "
        yield "they show what does not break any more, not what a new case would give.\n\n"
    for name, score in recorded.items():
        yield from _section(name, score, name)
    if drills:
        faults = len({row["fault"] for row in drills["scores"]})
        known = sum(not path.name.startswith("_") for path in FAULTS.glob("*/*.py"))
        yield f"## Drills\n\nReal jobs, broken on purpose by {faults} of {known} faults ({drills['backend']}).\n\n"
        yield from _section("All faults together", drills, "drill")
        yield from _faults(drills)
    yield from _losses(every)


def _section(title: str, score: Score, kind: str) -> Iterator[str]:
    totals = score["totals"].get(kind) or next(iter(score["totals"].values()), {})
    yield f"### {title}\n\n| tool | {' | '.join(label for _, label in COLUMNS)} |\n|---|{'---:|' * len(COLUMNS)}\n"
    for tool in sorted(totals, key=lambda name: (name != US, name)):
        yield f"| {tool} | {' | '.join(_cell(totals[tool], key) for key, _ in COLUMNS)} |\n"
    yield "\n"


def _faults(score: Score) -> Iterator[str]:
    tools = sorted({tool for row in score["scores"] for tool in row["tools"]}, key=lambda name: (name != US, name))
    yield f"| fault | cause | {' | '.join(tools)} |\n|---|---|{'---:|' * len(tools)}\n"
    for row in score["scores"]:
        cells = [_short(row["tools"].get(tool)) for tool in tools]
        star = " *" if row["injected"] else ""
        yield f"| {row['fault']}{star} | {row['cause']} | {' | '.join(cells)} |\n"
    yield "\nEach cell: right cause / exact culprits / runs. A star marks hardware faults that are injected as "
    yield "recorded evidence.\n\n"


def _losses(every: Iterable[Score]) -> Iterator[str]:
    yield "## What we get wrong\n\n"
    lost = [(score, miss) for score in every for miss in score["misses"] if miss["tool"] == US]
    for _, miss in lost:
        said = f"{miss['cause']} {miss['ranks']}"
        truth = f"{miss['truth'].get('cause')} {miss['truth'].get('culprit_ranks') or []}"
        yield f"- {miss['kind']}, {miss['fault']}: said {said}, truth {truth}\n"
    if not lost:
        yield "Nothing in these cases.\n"
    left = [row for score in every for row in score["skipped"]]
    yield "\n## What was left out\n\n"
    yield from sorted({f"- {row['fault']}: {row['why']}\n" for row in left})
    if not left:
        yield "Nothing.\n"


def _cell(count: dict[str, Any], key: str) -> str:
    value = count.get(key)
    if value is None:
        return ""
    share = key in ("right_cause", "exact_culprits") and count["runs"]
    return f"{value} ({100 * value // count['runs']} %)" if share else str(value)


def _short(count: dict[str, Any] | None) -> str:
    return f"{count['right_cause']} / {count['exact_culprits']} / {count['runs']}" if count and count["runs"] else ""


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _read(path: Path) -> Score | None:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _corpora(folder: Path) -> dict[str, Score]:
    found = {path.parent.name: _read(path) for path in sorted(folder.glob("*/score.json"))}
    return {name: score for name, score in found.items() if score}


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("score", type=Path)
    parser.add_argument(
        "--blind", type=Path, action="append", default=[], help="a folder with the score.json of a blind round"
    )
    options = parser.parse_args(words)
    drills, recorded = _read(options.score / "score.json"), _corpora(options.score)
    blind = {folder.name: score for folder in options.blind if (score := _read(folder / "score.json"))}
    recorded = {name: score for name, score in recorded.items() if name not in blind}
    if not drills and not recorded and not blind:
        print(f"{options.score} holds no score.json: run make score first", file=sys.stderr)
        return 2
    sys.stdout.writelines(page(drills, recorded, blind))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
