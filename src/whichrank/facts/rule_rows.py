"""Rules that need no code of their own: one row each, which holds the rule's whole page too."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Literal, cast

from msgspec import Struct

from whichrank.facts import fixes
from whichrank.model.findings import Category, Disturbance, NextStep

FOLDER = Path(__file__).parent / "rules"
Judge = Literal["messages", "output", "stacks", "guards", "habits", "arguments", "pairs", "paths"]
_DEFAULTS = "how"
"""A section that says how all rules of a file decide, for those that don't say it themselves."""


class RuleRow(Struct, frozen=True):
    """One rule."""

    code: str
    cause: str
    judge: Judge
    """Which evidence decides: the name of its file."""
    says: str
    """The sentence of the finding; for stacks what the rank is doing."""
    about: str
    """For stacks the activity, for guards and arguments what of a call differs, for habits and pairs which kind."""
    fix: tuple[str, ...]
    next: tuple[NextStep, ...]
    """Lines of `COMMAND -> what it tells`."""
    also: tuple[tuple[str, str], ...]
    """What else it could be, the likeliest first: lines of `cause reason`."""
    category: Category
    blames: Literal["rank", "host", "gpu"]
    page: str
    """As the docstring of a rule that is code."""
    more: dict[str, str]
    """What only some kinds of rules have, as it is written."""


@cache
def rows(judges: Literal["case", "code"] = "case") -> dict[str, RuleRow]:
    """Those that judge the evidence of a job, or training code, by code."""
    folder = FOLDER if judges == "case" else FOLDER / judges
    return {row.code: row for file in sorted(folder.glob("*.ini")) for row in _read(file)}


@cache
def codes() -> frozenset[str]:
    """The codes of those that judge a job, which are the headings of the files."""
    files = (file.read_text(encoding="utf-8") for file in FOLDER.glob("*.ini"))
    # The beginning of a line as a character: a search for it takes a third of one with re.MULTILINE.
    return frozenset(code for text in files for code in re.findall(r"\n\[([A-Z]+\d+)\]", f"\n{text}"))


def _read(file: Path) -> list[RuleRow]:
    from configparser import ConfigParser

    table = ConfigParser(delimiters=("=",), interpolation=None, default_section=_DEFAULTS)
    table.read(file, encoding="utf-8")
    return [_row(code, dict(table[code]), cast("Judge", file.stem)) for code in table.sections()]


def _row(code: str, said: dict[str, str], judge: Judge) -> RuleRow:
    fix = tuple(said.get("fix", "").splitlines()) or fixes.fix(said["cause"])
    settles, disturbs = (
        tuple(said.get("settles", said["cause"]).split()),
        cast("Disturbance", said.get("disturbs", "none")),
    )
    steps = (line.rpartition(" -> ") for line in said.get("next", "").splitlines())
    others = (line.partition(" ") for line in said.get("also", "").splitlines())
    return RuleRow(
        code=code,
        cause=said["cause"],
        judge=judge,
        says=said.get("says", ""),
        about=said.get("about", ""),
        fix=fix,
        next=tuple(NextStep(command, why, settles, disturbs) for command, _, why in steps),
        also=tuple((cause, why) for cause, _, why in others),
        category=cast("Category", said.get("category", "crash")),
        blames=cast("Literal['rank', 'host', 'gpu']", said.get("blames", "rank")),
        page=_page(said, fix),
        more={key: text for key, text in said.items() if key.startswith(("severity", "grade", "says_", "fix_"))},
    )


def _page(said: dict[str, str], fix: tuple[str, ...]) -> str:
    others = (text for key, text in said.items() if key.startswith("fix_"))
    sections = {
        "What it finds": said["finds"],
        "Why it happens": said["why"],
        "How it decides": said["decides"],
        "Example": "\n".join(line.replace("| ", "    ", 1) for line in said["example"].splitlines()),
        "Fix": "\n".join((*fix, *others)).replace("{name}", "the collective"),
        "Limits": said["limits"],
    }
    return "\n\n".join([said["title"], *(f"## {heading}\n{text.strip(chr(10))}" for heading, text in sections.items())])
