"""Whether a sentence says that something helped, and its sentences one by one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from whichrank.evidence.readers.reports.prose import LONGEST_LINE, is_printed_line
from whichrank.facts.interventions import UNCHANGED
from whichrank.records.trial import Outcome


def any_of(*phrases: str) -> re.Pattern[str]:
    return re.compile("|".join(phrases), re.IGNORECASE)


_NO_HELP = any_of(
    r"(?:\b(?:did|does|do|has|have|had|is|was|would|could|can|will)(?: not|n['’]?t)|\b(?:never|cannot|not))"
    r" (?:\w{1,12} ){0,2}?(?:help|work|fix|solv|resolv|chang|matter|improv|affect|any ?thing)\w{0,4}",
    UNCHANGED,
    r"\bstill (?:\w{1,12} )?(?:hang|hung|fail|crash|freez|froz|stuck|stall|happen|occur|the same|slow)\w{0,4}",
    r"\bstill (?:\w{1,12} )?(?:dies|gets?|sees?|wrong)\b",
    r"\b(?:neither|nor|in vain|useless|unchanged)\b",
    r"\bonly (?:delay|postpon)\w{0,3}",
    r"\bmakes? (?:it|things) worse",
    r"\b(?:hangs?|fails?|crashes) (?:anyway|too|as well|as before)",
    r"\bnone of (?:these|them|this|that)\b",
)
HELPED = any_of(
    r"\b(?:help(?:s|ed)|work(?:s|ed)|fix(?:es|ed)|solv(?:es|ed)|resolv(?:es|ed)|cur(?:es|ed)|succeed(?:s|ed))\b",
    r"\b(?:runs?|ran|trains?|trained|passes|passed|starts?|completes?)"
    r" (?:again|fine|ok|okay|through|well|normally|now|correctly|without (?:a |any )?(?:problem|issue|error|hang)s?)\b",
    r"\b(?:it|everything|training|the job) (?:runs|trains|passes|starts)\b",
    r"\b(?:goes|went|go) away\b",
    r"\bdisappear(?:s|ed)?\b",
    r"\b(?:is|are|was) (?:gone|not there|fine|right|correct|normal)\b",
    r"\b(?:does|did)(?: not|n['’]?t) (?:\w{1,8} )?(?:happen|occur|appear|hang|crash|fail|deadlock|freeze)\b",
    r"\bno (?:more|longer)\b",
    r"\bno (?:hang|problem|issue|error|crash)(?:s|es)?\b",
    r"\bdoes the trick\b",
    r"\bmakes? (?:it|the \w{1,20}|everything) (?:work|right|correct|fine|pass|run|go away)\b",
    r"\bfine with\b",
    r"\b(?:goes|went|gets|got|comes|came) through\b",
    r"\b(?:is|runs|stays|remains|was) (?:clean|stable)\b",
    r"\bno such (?:trouble|problem|issue|hang|error|thing|slowdown)s?\b",
    r"\b(?:full|expected|normal|usual|good) (?:speed|performance|throughput|bandwidth)\b",
)
NO_OUTCOME = any_of(
    r"\?\s*$",
    r"\b(?:might|may|could|should|would|perhaps|maybe|try|please|consider|recommend\w{0,3}|suggest\w{0,3})\b",
)
LIST_ITEM = re.compile(r"^\s{0,12}(?:[-*+•]|\(?\d{1,2}[.)]) +")
_SENTENCE = re.compile(r"(?<=[.!?;])\s+")
_TAG = re.compile(r"^\s{0,8}(?:\[[A-Za-z][\w /.-]{0,24}\]:? ?){1,3}(?=[A-Za-z])")
"""What titles of tickets begin with: `[Bug]: `, `[FSDP] `."""


class _Unit(Struct, frozen=True):
    """A sentence, or an item of a list with what its heading says."""

    text: str
    line: int
    heading: Outcome = "unknown"


def units(text: str) -> Iterator[_Unit]:
    """Sentences and list items of the prose; a line that goes on below is joined."""
    heading: Outcome = "unknown"
    held, begun = "", 0
    for number, raw in enumerate([*text.split("\n"), ""], 1):
        line = raw.rstrip().strip("`")
        if number == 1:
            line = _TAG.sub("", line)
        item = LIST_ITEM.match(line)
        usable = bool(line.strip()) and not is_printed_line(line) and len(line) <= LONGEST_LINE
        if held and (item or not usable):
            yield from (_Unit(part, begun) for part in _SENTENCE.split(held))
            heading = outcome_of(held) if held.endswith(":") else heading
            held = ""
        if not usable:
            heading = heading if not line.strip() else "unknown"
        elif item:
            body = line[item.end() :]
            yield from (_Unit(part, number, heading) for part in _SENTENCE.split(body))
        else:
            heading = "unknown"
            held, begun = (f"{held} {line.strip()}", begun) if held else (line.strip(), number)


def outcome_of(text: str) -> Outcome:
    if NO_OUTCOME.search(text):
        return "unknown"
    if _NO_HELP.search(text):
        return "did not help"
    return "helped" if HELPED.search(text) else "unknown"
