"""The person who reports a failure says what was behind it.

## What it finds
Words of a person beside the output: what helped, what was found, what is unusual on that machine.

## Why it happens
A report is mostly a few lines of output and a sentence. The sentence often holds the clue: "with another GID index it
works", "the firewall was on", "one node is always slower".

## How it decides
By the words that name a cause, in short texts and outside of what programs print. Words that are denied ("does not
help", "no packet loss") don't count. What a library or the kernel prints is surer, and comes first.

## Example
    All ranks hang. Disabling the firewall on both machines fixed it.

## Fix
That of the cause, as `whichrank explain CAUSE` tells it.

## Limits
People are wrong now and then: the confidence stays low, and nobody is accused by it.
"""

from __future__ import annotations

import re
from typing import cast

from whichrank.facts.messages import REPORT, signatures
from whichrank.facts.taxonomy import causes
from whichrank.model.findings import Category, Finding, NotEvaluated, Subject
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements
from whichrank.timeline.job_state.known_messages import Seen
from whichrank.timeline.job_state.outcome import observed

CODE = "CODE201"
CAUSE = "unknown"

_PREFIX = "reported-"
# What is no sentence of a person: settings, code, stacks, exceptions.
_NO_SENTENCE = re.compile(
    r"what\(\)|\b\w{1,60}(?:Error|Exception)\b|[Ee]xception: |error: |::\w|\bGUID\b|^Process \d|/site-packages/"
    r"|\bkernel: |/proc/"
    r"|^\w{1,60}=\S"
    r"|^\s{0,16}(?:if|elif|for|while|def|class|return|import|from|export|raise|assert|with|await)\b[^\n]{0,200}[:(=]"
)
_WORDS = 3
_MOST = 4
_WHERE_SLOW = {"rank-stuck-in-data-loading": "input-bound"}
"""What the same words mean in a job that goes on."""


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    names = [s.id for s in signatures().values() if s.library == REPORT and s.id.startswith(_PREFIX)]
    told: dict[str, list[Seen]] = {}
    for s in known_messages.seen(case, *names):
        if _is_sentence(s.sign.text) and s.signature.affirmed(s.sign.text):
            told.setdefault(s.signature.cause, []).append(s)
    findings = [_finding(case, cause, seen) for cause, seen in told.items()]
    return sorted(findings, key=lambda f: -f.confidence)[:_MOST]


def _is_sentence(text: str) -> bool:
    return not _NO_SENTENCE.search(text) and sum(word.strip(".,;:!?()").isalpha() for word in text.split()) >= _WORDS


def _finding(case: Case, cause: str, seen: list[Seen]) -> Finding:
    lead = max(seen, key=lambda s: s.signature.grade)
    if observed(case) == "slow":
        cause = _WHERE_SLOW.get(cause, cause)
    usual = causes()[cause].usual_category
    category = (observed(case) or usual) if usual in ("hang", "crash") else usual
    claim = Claim(
        CODE,
        cause,
        fix=(lead.signature.fix,),
        category=cast(Category, category),
        severity="warning" if category in ("slow", "config") else "error",
        alternatives=tuple((c, "the same words fit it too") for c in lead.signature.also),
    )
    message = f"The report says: {building.short(lead.sign.text, 120)}"
    found = building.found(
        case, claim, [lead.sign, *(s.sign for s in seen)], message.rstrip(".") + ".", lead.signature.grade
    )
    return building.about(found, Subject())
