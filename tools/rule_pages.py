"""Write docs/rules/ from the docstrings of the rules, and what each of them misses first in a case without evidence.

--check only says what is out of date.
"""

from __future__ import annotations

import csv
import sys
from inspect import cleandoc
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import field

from whichrank.facts.fixes import with_fix
from whichrank.flows.discovery import ROWS, UNMET, discover_rules
from whichrank.timeline.case import Case
from whichrank.timeline.hardware import Hardware

FOLDER = Path(__file__).parent.parent / "docs" / "rules"
GENERATED = "<!-- Written by `make docs` from the rules' docstrings; edit those. -->\n"


def title_and_body(module: ModuleType) -> tuple[str, str]:
    title, _, body = with_fix(cleandoc(module.__doc__ or ""), module.CAUSE).partition("\n")
    return title.rstrip("."), body.strip()


def pages() -> dict[str, str]:
    """File name -> text of every page and of their index."""
    written = {}
    index = ["# Rules\n", "One page per rule: what it finds, how it decides, how to fix it.\n"]
    index += ["| code | finds | cause | family |", "|---|---|---|---|"]
    judged = ("case", "settings", "host", "inspection", "bench", "code")
    everything = [rule for what in judged for rule in discover_rules(what)]
    for module in sorted(everything, key=lambda module: str(module.CODE)):
        title, body = title_and_body(module)
        family = module.__name__.split(".")[2].replace("_", "-")
        name = f"{module.CODE}.md"
        cause = f"`{module.CAUSE}`" if module.CAUSE else "none: hygiene"
        about = f"Cause: {cause} · family: `{family}`"
        written[name] = f"{GENERATED}# {module.CODE}: {title}\n\n{about}\n\n{body}\n"
        index.append(f"| [{module.CODE}]({name}) | {title} | {cause} | {family} |")
    return {**written, "README.md": GENERATED + "\n".join(index) + "\n"}


class Noted(Case):
    """A case that notes which parts of it are read."""

    read: list[str] = field(default_factory=list)

    def __getattribute__(self, name: str) -> Any:
        if name in _OF_CASE:
            self.read.append(name)
        return super().__getattribute__(name)


class NotedHardware(Hardware):
    """The same for what hosts say."""

    read: list[str] = field(default_factory=list)

    def __getattribute__(self, name: str) -> Any:
        if name in _OF_HARDWARE:
            self.read.append(f"hardware.{name}")
        return super().__getattribute__(name)


_OF_CASE = set(Case.__struct_fields__) - {"hardware"}
_OF_HARDWARE = set(Hardware.__struct_fields__)


def unmet() -> str:
    """A line per rule: its code, its module, what it reads before it gives up, and what it says is missing."""
    out = StringIO()
    rows = csv.writer(out, lineterminator="\n")
    for rule in discover_rules():
        read: list[str] = []
        answer = rule.judge(Noted(hardware=NotedHardware(read=read), read=read))
        module = rule.__name__ if hasattr(rule, "__file__") else ROWS
        rows.writerow([rule.CODE, module, " ".join(sorted(set(read))), answer.missing])
    return out.getvalue()


def main() -> int:
    if UNMET.read_text(encoding="utf-8") != unmet():
        if "--check" in sys.argv[1:]:
            print(f"{UNMET.name} of the rules is out of date; run: make docs")
            return 1
        UNMET.write_text(unmet(), encoding="utf-8")
    wanted = pages()
    there = {file.name: file.read_text(encoding="utf-8") for file in FOLDER.glob("*.md")}
    stale = sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name))
    if "--check" in sys.argv[1:]:
        for name in stale:
            print(f"docs/rules/{name} is out of date; run: make docs")
        return 1 if stale else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in stale:
        if name in wanted:
            (FOLDER / name).write_text(wanted[name], encoding="utf-8")
        else:
            (FOLDER / name).unlink()
    print(f"{len(wanted) - 1} rule pages, {len(stale)} changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
