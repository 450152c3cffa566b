"""Rules are found by the folder they are in; nothing registers them."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules, walk_packages
from types import ModuleType


@cache
def rules_below(family: str) -> tuple[ModuleType, ...]:
    """Every rule in a family's folder and in the folders inside it, by code."""
    package = import_module(f"whichrank.rules.{family}")
    files = walk_packages(package.__path__, f"{package.__name__}.")
    return tuple(sorted((import_module(f.name) for f in files if not f.ispkg), key=lambda rule: str(rule.CODE)))


def discover_rules(judges: str = "case") -> list[ModuleType]:
    """Every rule that judges a case, or what the package of its family says instead (`JUDGES = "settings"`)."""
    package = import_module("whichrank.rules")
    families = [entry.name for entry in iter_modules(package.__path__) if entry.ispkg]
    chosen = [f for f in families if getattr(import_module(f"{package.__name__}.{f}"), "JUDGES", "case") == judges]
    found = [rule for family in chosen for rule in rules_below(family)]
    if judges == "case":
        found += import_module(f"{package.__name__}.from_rows").rules()
    return sorted(found, key=lambda rule: str(rule.CODE))
