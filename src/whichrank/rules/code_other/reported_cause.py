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
from whichrank.model.findings import Category, Finding, Grade, NotEvaluated, Subject
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
_WAITS_IN = re.compile(
    r"(?i:(?:hang\w{0,3}|hung|stuck|freez\w{1,3}|froze\w?|block\w{0,3}|wait\w{0,3}|dead-?lock\w{0,3})\b[^\n.]{0,30}"
    r"\b(?:in|at|on|inside|during)\b[^\n.]{0,30}\b(?:\w{1,20}\.){0,2}"
    r"(?:barrier|all_?-?reduce|all_?-?gather|broadcast|reduce_?-?scatter)\b)"
)
_DESYNC = Claim(
    CODE,
    "collective-desync",
    fix=("Take the stacks of all ranks (whichrank stacks): they tell who is elsewhere.",),
    category="hang",
    alternatives=(
        ("conditional-collective", "one of them may not call it"),
        ("uneven-inputs", "one of them may have left its loop"),
        ("collective-stalled", "all may have come, and the network or a GPU does not answer"),
    ),
)
_WITHOUT_SPACES = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]{4}")
"""Chinese and Japanese, whose sentences have no spaces."""
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
    findings = [_finding(case, cause, seen) for cause, seen in told.items()] or _in_a_collective(case)
    return sorted(findings, key=lambda f: -f.confidence)[:_MOST]


def _in_a_collective(case: Case) -> list[Finding]:
    """What is left where a person says in which collective it hangs: not all have come, or it does not end."""
    hangs = [c for c in case.complaints if c.category == "hang" and _WAITS_IN.search(c.ref.quote)]
    if not hangs or case.stacks or case.lineup is not None or case.log_events:
        return []
    sign = statements.Statement(hangs[0].ref.quote, hangs[0].ref)
    message = f"It hangs in a collective, and nothing says why: {building.short(sign.text, 120)}."
    return [building.about(building.found(case, _DESYNC, [sign], message, Grade.HINTS), Subject())]


def _is_sentence(text: str) -> bool:
    if _NO_SENTENCE.search(text):
        return False
    spaced = sum(word.strip(".,;:!?()").isalpha() for word in text.split())
    return spaced >= _WORDS or _WITHOUT_SPACES.search(text) is not None


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
