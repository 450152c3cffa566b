"""Rules asked one after the other: what they find, and which of them had nothing to judge by."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from whichrank.model.evidence import Skipped, defect
from whichrank.model.findings import Finding, NotEvaluated


class Judged(NamedTuple):
    """All findings; the codes that found something, that are clear, and that had nothing to judge by."""

    findings: list[Finding]
    found: list[str]
    clear: list[str]
    skipped: list[Skipped]


def judged(rules: Sequence[Any], case: Any, progress: Callable[[str, int, int], None] | None = None) -> Judged:
    """What every rule says of a case."""
    answers = Judged([], [], [], [])
    for done, rule in enumerate(rules):
        if progress is not None:
            progress("judging", done, len(rules))
        answer = _ask(rule, case)
        if isinstance(answer, NotEvaluated):
            answers.skipped.append(Skipped(rule.CODE, answer.missing))
        else:
            answers.findings.extend(answer)
            (answers.found if answer else answers.clear).append(rule.CODE)
    return answers


def _ask(rule: Any, case: Any) -> list[Finding] | NotEvaluated:
    """What the rule says; a defect in one must not cost what the others say."""
    try:
        answer: list[Finding] | NotEvaluated = rule.judge(case)
    except Exception as error:
        if os.environ.get("WHICHRANK_DEBUG"):
            raise
        return NotEvaluated(defect(error))
    return answer
