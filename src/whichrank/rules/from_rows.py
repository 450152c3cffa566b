"""The rules of `facts/rules/`: each is one call, with its page, as if it were a module of its family."""

from __future__ import annotations

from functools import cache, partial
from types import ModuleType
from typing import Any, cast

from whichrank.facts.rule_rows import RuleRow, rows
from whichrank.facts.taxonomy import causes
from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules import building, busy_ranks, guard_mismatches, stuck_ranks
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state.activity import Doing


@cache
def rules() -> tuple[ModuleType, ...]:
    """All of them."""
    return tuple(_module(row) for row in rows().values())


def _module(row: RuleRow) -> ModuleType:
    family = causes()[row.cause].family.replace("-", "_")
    rule: Any = ModuleType(f"whichrank.rules.{family}.{row.code}", row.page)
    rule.CODE, rule.CAUSE, rule.judge = row.code, row.cause, partial(_judge, row)
    return cast("ModuleType", rule)


def _judge(row: RuleRow, case: Case) -> list[Finding] | NotEvaluated:
    if row.judge == "guards":
        return guard_mismatches.judge(case, row.code, row.cause, row.about, row.fix[0])
    if row.judge == "stacks":
        return stuck_ranks.judge_held(case, cast("Doing", row.about), row.code, row.cause, row.says, row.fix)
    claim = Claim(row.code, row.cause, row.fix, row.category, blames=row.blames, alternatives=row.also, next=row.next)
    return (building.judged if row.judge == "messages" else busy_ranks.judge)(case, claim, row.says)
