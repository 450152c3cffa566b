"""The causes that a verdict may name."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, cast

from msgspec import Struct

from whichrank.facts import site
from whichrank.facts.tables import rows


class Cause(Struct, frozen=True):
    """One row of the taxonomy."""

    slug: str
    family: str
    usual_category: str
    meaning: str
    culprit: str
    """Who is meant by the culprit of this cause."""
    phase: Literal["launch", "any"] = "any"
    """A launch cause stops a job before its first collective: it can't explain a job that trained afterwards."""
    role: Literal["cause", "generic", "ending", "why-late"] = "cause"
    """generic: says that something did not happen, not why. ending: how a job that already stands still is taken down.
    why-late: says why a straggler is late."""
    yields: float = 0.0
    """How much surer it must be than an explicit cause to be told instead of it."""
    defers_to: tuple[str, ...] = ()
    """Causes that say more about the same fault: told instead of this one where they are as well supported."""


@cache
def causes() -> dict[str, Cause]:
    """All causes by their slug; those of plug-ins never replace a built-in one."""
    known = {row["cause"]: _cause(row) for row in rows("taxonomy.csv")}
    usual = {"phase": "any", "role": "cause", "yields": "0", "defers_to": ""}
    added = {row["cause"]: _cause({**usual, **row}) for row in site.added_causes()}
    return added | known


def _cause(row: dict[str, str]) -> Cause:
    return Cause(
        row["cause"],
        row["family"],
        row["usual_category"],
        row["meaning"],
        row["culprit"],
        cast("Any", row["phase"]),
        cast("Any", row["role"]),
        float(row["yields"]),
        tuple(row["defers_to"].split()),
    )
