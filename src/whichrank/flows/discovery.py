"""Rules are found by the folder they are in; nothing registers them."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from msgspec import Struct

from whichrank.facts import rule_rows
from whichrank.model.evidence import Skipped

if TYPE_CHECKING:
    from whichrank.timeline.case import Case

RULES = "whichrank.rules"
ROWS, CODE_ROWS = f"{RULES}.from_rows", f"{RULES}.code_rows"
UNMET = Path(__file__).parents[1] / "rules" / "unmet.csv"


class Unmet(Struct, frozen=True):
    """What a rule reads of a case without evidence before it answers that something is missing."""

    code: str
    module: str
    reads: tuple[str, ...]
    missing: str


@cache
def unmet() -> tuple[Unmet, ...]:
    """What `make docs` has written down of every rule; one that is not there is loaded and asked, as ever."""
    with UNMET.open(newline="", encoding="utf-8") as stream:
        return tuple(Unmet(code, module, tuple(reads.split()), why) for code, module, reads, why in csv.reader(stream))


@cache
def rules_below(family: str) -> tuple[ModuleType, ...]:
    """Every rule in a family's folder and in the folders inside it, by code."""
    return tuple(sorted(map(import_module, _files(family)), key=lambda rule: str(rule.CODE)))


def discover_rules(judges: str = "case") -> list[ModuleType]:
    """Every rule that judges a case, or what the package of its family says instead (`JUDGES = "settings"`)."""
    found = [rule for family in _families(judges) for rule in rules_below(family)]
    if judges in ("case", "code"):
        found += import_module(ROWS if judges == "case" else CODE_ROWS).rules()
    return sorted(found, key=lambda rule: str(rule.CODE))


def rules_for(case: Case) -> tuple[list[ModuleType], list[Skipped]]:
    """The rules to ask about a case, and those whose answer is known because all that they read first is missing.

    Rules are pure: one that reads the same as in a case without evidence answers the same. It need not be loaded."""
    known = [row for row in unmet() if all(_is_missing(case, path) for path in row.reads)]
    names = {row.module for row in known if row.module != ROWS}
    files = {name: family for family in _packages() for name in _files(family)}
    rules = [import_module(name) for name, family in files.items() if name not in names and _judges(family) == "case"]
    of_rows = {row.code for row in known if row.module == ROWS}
    if not of_rows >= rule_rows.codes():
        rules += [rule for rule in import_module(ROWS).rules() if rule.CODE not in of_rows]
    there = {*files, ROWS}
    return sorted(rules, key=lambda rule: str(rule.CODE)), [
        Skipped(r.code, r.missing) for r in known if r.module in there
    ]


def _is_missing(case: Case, path: str) -> bool:
    value: object = case
    for name in path.split("."):
        value = getattr(value, name)
    return value is None or value is False or (isinstance(value, (list, dict)) and not value)


def _families(judges: str) -> list[str]:
    return [family for family in _packages() if _judges(family) == judges]


@cache
def _packages() -> tuple[str, ...]:
    return tuple(entry.name for entry in _sorted(UNMET.parent) if _is_package(entry))


@cache
def _judges(family: str) -> str:
    return getattr(import_module(f"{RULES}.{family}"), "JUDGES", "case")


@cache
def _files(family: str) -> tuple[str, ...]:
    """The names of a family's modules, without loading them."""
    return tuple(_below(UNMET.parent / family, f"{RULES}.{family}"))


def _below(folder: str | Path, package: str) -> Iterator[str]:
    """By the names of files: `pkgutil` looks into every folder, which takes twice as long."""
    for entry in _sorted(folder):
        if entry.name.endswith(".py") and entry.name != "__init__.py":
            yield f"{package}.{entry.name.removesuffix('.py')}"
        elif _is_package(entry):
            yield from _below(entry.path, f"{package}.{entry.name}")


def _is_package(entry: os.DirEntry[str]) -> bool:
    return entry.name.isidentifier() and entry.name != "__pycache__" and entry.is_dir()


def _sorted(folder: str | Path) -> list[os.DirEntry[str]]:
    return sorted(os.scandir(folder), key=lambda entry: entry.name)
