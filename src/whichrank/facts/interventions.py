"""What people change when a job fails, and what it means when that helps or does not: `interventions.csv`."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from whichrank.facts.required_words import search
from whichrank.facts.tables import rows


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
    unless: str
    """A known message that shows that it was not done, whatever people say."""

    def within(self, text: str) -> re.Match[str] | None:
        """Where the text speaks of it."""
        lower = text.lower()
        return search(self.shape, text) if any(map(lower.__contains__, self.words)) else None


ONE_HOST = "one host only"
"""Not a change but a smaller job: that it works there speaks against causes within a host."""
SMALLER = (ONE_HOST, "one GPU only")
"""Smaller jobs: what works there speaks for nothing but what was seen."""


UNCHANGED = (
    r"\b(?:no|without|zero) (?:\w{1,12} )?(?:effect|difference|change|luck|help|success|improvement|avail)\b"
    r"|\b(?:same|identical) (?:error|result|problem|hang|behaviou?r|issue|crash|thing|factor|speed|time)"
    r"|\bnothing (?:changed|helped|worked)\b"
    r"|\b(?:did|does|do|has|have|had)(?: not|n['’]?t) (?:\w{1,12} )?(?:help|chang|improv|matter)\w{0,3}"
)
"""How people say that a change did nothing, in any case."""
_UNCHANGED = re.compile(UNCHANGED, re.IGNORECASE)


def did_nothing(text: str) -> bool:
    """Whether a sentence tells of something that was tried and changed nothing."""
    return search(_UNCHANGED, text) is not None


@cache
def interventions() -> dict[str, Intervention]:
    """By the name of the change."""
    found = {}
    for row in rows("interventions.csv"):
        shape = re.compile(row["pattern"], re.IGNORECASE)
        causes = (tuple(row["helped"].split()), tuple(row["refuted"].split()))
        words = tuple(row["words"].split())
        found[row["change"]] = Intervention(row["change"], words, shape, *causes, row["source"], row["unless"])
    return found
