"""The causes that a verdict may name."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Cause:
    """One row of the taxonomy."""

    slug: str
    family: str
    usual_category: str
    meaning: str
    culprit: str
    """Who is meant by the culprit of this cause."""


@cache
def causes() -> dict[str, Cause]:
    """All causes by their slug."""
    with (Path(__file__).parent / "taxonomy.csv").open(newline="", encoding="utf-8") as stream:
        rows = csv.DictReader(stream)
        return {
            row["cause"]: Cause(row["cause"], row["family"], row["usual_category"], row["meaning"], row["culprit"])
            for row in rows
        }
