"""What a person writes about a failure: what was tried and whether it helped, and what was seen.

Read are short texts, outside of what programs print. "NCCL_P2P_DISABLE=1 does not help" and "works with
NCCL_P2P_DISABLE=1" are opposite statements: a change gets the outcome that stands nearest to it in its sentence, or
that of the heading above its list. Questions, advice and guesses ("might help") have no outcome.
"""

from __future__ import annotations

import re

from whichrank.evidence.readers.reports.outcomes import HELPED, any_of, units
from whichrank.evidence.readers.reports.prose import by_person, shape_is_prose
from whichrank.evidence.readers.reports.symptoms import answers, complaints
from whichrank.evidence.readers.reports.trials import by_version, faster_items, tabled, tried
from whichrank.evidence.text.quotations import DOCUMENTS
from whichrank.evidence.text.text_file import is_text
from whichrank.facts.interventions import did_nothing
from whichrank.facts.messages import is_printed
from whichrank.model.contracts import Item, Reading
from whichrank.model.evidence import Ref
from whichrank.records.trial import Complaint, Trial

NAME = "reports"
BESIDE = True

_LARGEST = 1 << 16
"""What a person writes about a failure is not longer."""
_NOT_PROSE = (
    ".py", ".pyi", ".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".json", ".jsonl", ".yaml", ".yml", ".csv", ".sh",
)  # fmt: skip
_CHAT = re.compile(
    r"(?m)^[ \t]{0,4}\[?(?:\d{4}-\d\d-\d\d )?\d{1,2}:\d\d(?: [AP]M)?\]?,? "
    r"(?:[<@]?[A-Za-z][\w.-]{0,30}(?: [A-Z][\w.-]{0,30})?>?:?) (?=[^\n]{0,400} )"
)
"""What a chat puts before the words of each: `[09:14] anya: `. Programs print the seconds too."""
_SWITCHED_OFF = any_of(r"\b(?:off|disabled?|disabling|without|skip\w{0,4}|removed?|removing|no)\b", r"=? ?False\b")
_COMES_WHEN = any_of(
    r"\b(?:comes? up|happen(?:s|ed)?|occur(?:s|red)?|appear(?:s|ed)?|shows? up) "
    r"(?:\w{1,10} ){0,2}?(?:when|while|whenever|as soon as|during|in the middle of)\b"
)
_ANSWER = 4
"""What an answer weighs, against sentences that only name a symptom."""
VAGUE = any_of(r"\b(?:fails?|failed|failing|failure)\b")
"""Every report may say so in its title: it does not tell how."""
_AS_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_TITLE_LINES = 4
_QUOTED = re.compile(r"`[^`\n]{1,200}`|\"[^\"\n]{16,300}(?:\"|$)|“[^”\n]{16,300}(?:”|$)")
"""What a person only cites: a function in whose name a message of a program may stand, or the message."""


def sniff(head: bytes, name: str) -> bool:
    """Whether the beginning speaks of a change or a failure in sentences."""
    if not is_text(head) or name.lower().endswith(_NOT_PROSE):
        return False
    text = _CHAT.sub("", head.translate(_AS_ZEROS).decode("utf-8", "replace"))
    return any(map(shape_is_prose, text.split("\n")[:200]))


def read(item: Item) -> Reading:
    """Trials and complaints; nothing of a text that is too long to be a report."""
    if item.size > _LARGEST or item.label.lower().endswith(_NOT_PROSE):
        return Reading([], "ignored", "not a report of a person")
    from whichrank.facts.phases import phase_in  # large patterns, and most evidence has no report

    records: list[Trial | Complaint] = []
    text = _CHAT.sub("- ", item.read().decode("utf-8", "replace"))
    document = item.label.lower().endswith(DOCUMENTS)
    spoken = document or by_person(text)
    for line, row, change, outcome in tabled(text) if spoken else ():
        records.append(Trial(change, outcome, Ref(item.label, f"line {line}", row[:400])))
    for line, said in list(by_version(text))[:1] if spoken else ():
        records.append(Trial("another NCCL", "helped", Ref(item.label, f"line {line}", said[:400])))
    faster = faster_items(text) if spoken else set()
    records += [
        Complaint(category, Ref(item.label, f"line {line}", said), _ANSWER) for line, said, category in answers(text)
    ]
    for unit in units(text) if spoken else ():
        ref = Ref(item.label, f"line {unit.line}", unit.text[:400])
        heading = "helped" if unit.line in faster else unit.heading
        records += [Trial(change, outcome, ref) for change, outcome in tried(unit.text, heading)]
        weight = 2 if unit.line <= _TITLE_LINES and not VAGUE.search(unit.text) else 1
        seen = complaints(unit.text)
        phase = None if did_nothing(unit.text) else phase_in(unit.text)
        if seen and not is_printed(_QUOTED.sub("", unit.text)):
            records += [Complaint(category, ref, weight, phase) for category in seen]
        elif phase is not None and _says_when(unit.text):
            records.append(Complaint("hang", ref, 0, phase))
    return Reading(list(records), "complete" if records else "ignored", "" if records else "no report in it")


def _says_when(sentence: str) -> bool:
    """Whether a sentence without a symptom says what the job does when it comes, or without which it does not."""
    switched_off = _SWITCHED_OFF.search(sentence) is not None and HELPED.search(sentence) is not None
    return switched_off or _COMES_WHEN.search(sentence) is not None
