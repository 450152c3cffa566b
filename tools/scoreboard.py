"""docs/scoreboard.md from what `make score` wrote: tools/scoreboard.py SCORE [--blind FILE] > docs/scoreboard.md

SCORE is the folder of `make score`: one folder per corpus with its `score.json`, and `score.json` of live drills where
there were any. FILE is the record of blind rounds (tests/samples/blind_rounds.csv); it stands first.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

US = "whichrank"
COLUMNS = (
    ("runs", "cases"), ("right_cause", "right cause"), ("exact_culprits", "exact culprits"),
    ("innocents_accused", "innocents accused"), ("alarm_s", "alarm s"), ("verdict_s", "verdict s"),
    ("answer_s", "answer s"),
)  # fmt: skip
ABOUT = {
    "drills_nccl": "Drills on NCCL: real jobs on an H200, broken on purpose, recorded as `whichrank run` took them.",
    "nccl_faults": "NCCL jobs with one known fault each, recorded without whichrank: dumps, logs, stacks.",
    "recorded_cases": "Failures of real jobs (NCCL on an H200, Gloo) and logs of real ones.",
    "incidents": "Public bug reports as their authors pasted them: text alone, nothing for tools that read dumps.",
    "simulations": "Simulated jobs with random shapes and faults: flight-recorder dumps alone, some lost or cut.",
    "logs_round_1": "Logs of the first blind round, as they score now.",
    "logs_round_2": "Logs of the second blind round, as they score now.",
    "logs_round_3": "Logs of the third blind round, as they score now.",
}
LEGEND = """\
- *Right cause*: the true one, or one that is right too. torchfrtrace, NVRx and NCCL's RAS tell of ranks and of
  mismatches: they have no word for most causes.
- *Exact culprits*: exactly the ranks to blame and nobody else, of the cases in which a rank is to blame. Of NVRx all
  ranks count that its table calls missing, of torchfrtrace those of its first finding, of RAS its outliers.
- *Innocents accused*: answers that name a rank that did nothing wrong.
- *Answer s*: seconds from the evidence to the answer, the median, on the machine that made this page.
"""
AT_HAND = """\
## The same evidence for all tools

These cases were at hand while rules were written: they show what does not break any more, and how the tools compare,
not what a new case would give.

"""
BLIND = """\
Each set was written without a look at the rules, frozen, and scored once; the figure is never changed. Most are text,
which the other tools don't read.

"""
NVRX = """\
- NVRx's log attribution (restart agent, LogSage) asks a language model over the network; only its analysis of
  flight-recorder dumps runs by itself, and that is what is scored.
"""
Score = dict[str, Any]
FAULTS = Path(__file__).parent.parent / "src" / "whichrank" / "lab" / "faults"


def page(drills: Score | None, recorded: dict[str, Score], blind: list[dict[str, str]]) -> Iterator[str]:
    """The whole document."""
    every = [score for score in (drills, *recorded.values()) if score]
    version = every[0]["tool"]["version"] if every else "?"
    others = {name: told for score in every for name, told in score.get("versions", {}).items()}
    yield "# Scoreboard\n\n"
    yield f"Made by `make score` on {datetime.now(timezone.utc):%Y-%m-%d} with {US} {version}, torch "
    yield f"{_version('torch')}; beside it {', '.join(f'{name} ({told})' for name, told in sorted(others.items()))}.\n"
    yield f"All tools get the same evidence.\n\n{LEGEND}\n"
    yield from _blind(blind)
    if recorded:
        yield AT_HAND
    for name, score in recorded.items():
        yield from _section(name, score, name)
    if drills:
        faults = len({row["fault"] for row in drills["scores"]})
        known = sum(not path.name.startswith("_") for path in FAULTS.glob("*/*.py"))
        yield f"## Live drills\n\nReal jobs, broken on purpose by {faults} of {known} faults ({drills['backend']}).\n\n"
        yield from _section("All faults together", drills, "drill")
        yield from _faults(drills)
    yield from _losses(every)


def _blind(rounds: list[dict[str, str]]) -> Iterator[str]:
    yield "## Blind: nobody had seen these cases before\n\n"
    if not rounds:
        yield "No blind round is part of this edition.\n\n"
        return
    yield BLIND
    yield "| round | what | right | | innocents accused | |\n|---|---|---:|---|---:|---|\n"
    for row in rounds:
        share = f"{row['right']} of {row['cases']} ({100 * int(row['right']) // int(row['cases'])} %)"
        yield f"| {row['round']} | {row['what']} | {share} | {row['measure']} | {row['innocents']} | {row['note']} |\n"
    yield "\n"


def _section(title: str, score: Score, kind: str) -> Iterator[str]:
    totals = score["totals"].get(kind) or next(iter(score["totals"].values()), {})
    shown = [(key, label) for key, label in COLUMNS if any(_cell(count, key) for count in totals.values())]
    yield f"### {title}\n\n"
    if title in ABOUT:
        yield f"{ABOUT[title]}\n\n"
    yield f"| tool | {' | '.join(label for _, label in shown)} |\n|---|{'---:|' * len(shown)}\n"
    for tool in sorted(totals, key=lambda name: (name != US, name)):
        yield f"| {tool} | {' | '.join(_cell(totals[tool], key) for key, _ in shown)} |\n"
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
    every = list(every)
    yield "## What we get wrong\n\n"
    lost = [miss for score in every for miss in score["misses"] if miss["tool"] == US]
    for miss in lost:
        said = f"{miss['cause']} {miss['ranks']}"
        truth = f"{miss['truth'].get('cause')} {miss['truth'].get('culprit_ranks') or []}"
        yield f"- {miss['kind']}, {miss['fault']}: said {said}, truth {truth}\n"
    if not lost:
        yield "Nothing in these cases.\n"
    better = sorted({(miss["kind"], miss["fault"]) for miss in lost} - _missed_by_others(every))
    yield "\nWhere another tool was wholly right and we were not: "
    yield f"{', '.join(f'{kind}, {case}' for kind, case in better) or 'nowhere in these cases'}.\n"
    yield "\n## What was left out\n\n"
    left = sorted({f"- {row['fault']}: {row['why']}\n" for score in every for row in score["skipped"]})
    yield from left
    yield NVRX


def _missed_by_others(every: Iterable[Score]) -> set[tuple[str, str]]:
    """Cases that every other tool got wrong too."""
    found = set()
    for score in every:
        others = {tool for row in score["scores"] for tool in row["tools"]} - {US}
        missed: dict[tuple[str, str], set[str]] = {}
        for miss in score["misses"]:
            missed.setdefault((miss["kind"], miss["fault"]), set()).add(miss["tool"])
        found |= {case for case, tools in missed.items() if tools >= others}
    return found


def _cell(count: dict[str, Any], key: str) -> str:
    value = count.get(key)
    if value is None:
        return ""
    if key == "right_cause" and count["runs"]:
        return f"{value} ({100 * value // count['runs']} %)"
    if key == "exact_culprits":
        known = count["culprits_known"]
        return f"{value} of {known} ({100 * value // known} %)" if known else "–"
    return str(value)


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
    """In the order of the descriptions, others behind."""
    found = {path.parent.name: _read(path) for path in sorted(folder.glob("*/score.json"))}
    order = list(ABOUT)
    names = sorted(found, key=lambda name: (order.index(name) if name in order else len(order), name))
    return {name: score for name in names if (score := found[name])}


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("score", type=Path)
    parser.add_argument("--blind", type=Path, help="the record of blind rounds")
    options = parser.parse_args(words)
    drills, recorded = _read(options.score / "score.json"), _corpora(options.score)
    if not drills and not recorded:
        print(f"{options.score} holds no score.json: run make score first", file=sys.stderr)
        return 2
    blind = list(csv.DictReader(options.blind.open(encoding="utf-8"))) if options.blind else []
    sys.stdout.writelines(page(drills, recorded, blind))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
