"""What people change when a job fails, and what it means when that helps or does not: `interventions.csv`."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from whichrank.facts.environment import rows


class Intervention(NamedTuple):
    """One change that is tried."""

    change: str
    words: tuple[str, ...]
    """A sentence without any of these, in lower case, does not speak of it: a quick look before the pattern."""
    shape: re.Pattern[str]
    helped: tuple[str, ...]
    """The causes that it speaks for when it helped."""
    refuted: tuple[str, ...]
    """The causes that are out when it did not help (or, for a smaller job, when that worked)."""
    source: str

    def within(self, text: str) -> re.Match[str] | None:
        """Where the text speaks of it."""
        lower = text.lower()
        return self.shape.search(text) if any(word in lower for word in self.words) else None


ONE_HOST = "one host only"
"""Not a change but a smaller job: that it works there speaks against causes within a host."""
SMALLER = (ONE_HOST, "one GPU only")
"""Smaller jobs: what works there speaks for nothing but what was seen."""


@cache
def interventions() -> dict[str, Intervention]:
    """By the name of the change."""
    found = {}
    for row in rows("interventions.csv"):
        shape = re.compile(row["pattern"], re.IGNORECASE)
        causes = (tuple(row["helped"].split()), tuple(row["refuted"].split()))
        found[row["change"]] = Intervention(row["change"], tuple(row["words"].split()), shape, *causes, row["source"])
    return found
