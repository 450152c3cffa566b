"""A message that this site has described says what went wrong.

## What it finds
Messages of the site's own plug-ins: signatures in a folder named by `WHICHRANK_RULES` or `--rules`, in a configuration
folder, or in an installed package.

## Why it happens
Schedulers, storage and wrappers of a site print messages that nobody else knows.

## How it decides
By the signature's pattern, as with built-in messages. Only signatures with the role `root` make a finding; its
grade is that of the strongest signature.

## Example
    acme-storage: lease on /scratch/acme lost, I/O suspended

with a signature whose anchor is `acme-storage: lease on`.

## Fix
That of the signature.

## Limits
It is as good as the signature. `whichrank rules check DIR` tests the examples that each signature must have.
"""

from __future__ import annotations

from collections.abc import Container
from typing import cast

from whichrank.facts.messages import added
from whichrank.facts.taxonomy import causes
from whichrank.model.findings import Category, Finding, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements

CODE = "CODE204"
CAUSE = "unknown"


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    own = added()
    told = {s.cause for s in own.values() if s.role == "root" and s.cause}
    return [finding for cause in sorted(told) for finding in _findings(case, cause, own.keys())]


def _findings(case: Case, cause: str, own: Container[str]) -> list[Finding]:
    speaking = [s for s in known_messages.of_cause(case, cause) if s.id in own]
    if not any(s.signature.role == "root" for s in speaking):
        return []
    lead = max(speaking, key=lambda s: (s.signature.role == "root", s.signature.grade))
    category = causes()[cause].usual_category
    claim = Claim(
        CODE,
        cause,
        fix=(lead.signature.fix,) if lead.signature.fix else (),
        category=cast(Category, category),
        severity="warning" if category in ("slow", "config") else "error",
        blames="host" if lead.signature.who == "host" else "rank",
    )
    title = lead.signature.title.rstrip(".").replace("{", "").replace("}", "")
    tell = f"{title} ({{what}})." if lead.signature.who == "nobody" else f"{{who}} reports: {title} ({{what}})."
    return [building.tell_of(case, claim, tell, speaking, known_messages.grade(speaking))]
