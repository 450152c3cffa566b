"""The rules on training code: rows of `facts/rules/code/`. They judge a program that was read, not a job."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial
from types import ModuleType
from typing import Any, cast

from whichrank.facts import rule_rows
from whichrank.facts.rule_rows import RuleRow
from whichrank.model.evidence import Ref
from whichrank.model.findings import Category, CodePlace, Finding, Grade, NotEvaluated, Severity, Subject
from whichrank.records.code import Parting, ProgramCase
from whichrank.rules.code_paths import BY_RANK, WAYS, main_kind, words

_CERTAIN = frozenset({"rank", "host", "data", "time"})
"""What differs between ranks by its nature."""


@cache
def rules() -> tuple[ModuleType, ...]:
    """All of them."""
    return tuple(_module(row) for row in rule_rows.rows("code").values())


def _module(row: RuleRow) -> ModuleType:
    rule: Any = ModuleType(f"whichrank.rules.code.{row.code}", row.page)
    rule.CODE, rule.CAUSE, rule.judge = row.code, row.cause, partial(_judge, row)
    return cast("ModuleType", rule)


def _judge(row: RuleRow, case: Any) -> list[Finding] | NotEvaluated:
    if not isinstance(case, ProgramCase):
        return NotEvaluated("a Python program that communicates")
    judges = {"habits": _on_habits, "arguments": _on_arguments, "pairs": _on_pairs, "paths": _on_paths}
    return list(judges[row.judge](row, case))


def _on_habits(row: RuleRow, case: ProgramCase) -> Iterator[Finding]:
    """Something that is no operation out of step, but asks for trouble."""
    category: Category = "corruption" if row.cause == "replica-divergence" else "config"
    for habit in case.habits:
        if habit.what == row.about:
            message = f"{habit.said[:1].upper()}{habit.said[1:]}."
            severity = cast("Severity", row.more["severity"])
            yield _found(row, category, severity, Grade.SUPPORTS, message, (habit.ref, *habit.others))


def _on_arguments(row: RuleRow, case: ProgramCase) -> Iterator[Finding]:
    """Operations that ranks call with different arguments of one kind."""
    for apart in case.disagreements:
        if apart.about == row.about:
            refs = (apart.operation.ref, *(reason.ref for reason in apart.reasons))
            message = f"Ranks disagree in {apart.operation.name}: {apart.said}."
            yield _found(row, row.category, "error", Grade[row.more["grade"]], message, refs)


def _on_pairs(row: RuleRow, case: ProgramCase) -> Iterator[Finding]:
    """Sends and receives that can't all finish."""
    for pairing in case.pairings:
        if pairing.shape == row.about:
            others = pairing.others if pairing.shape == "cycle" else ()
            refs = (pairing.operation.ref, *(operation.ref for operation in others))
            yield _found(row, "hang", "error", Grade.PROVES, row.says.format(said=pairing.said), refs)


def _on_paths(row: RuleRow, case: ProgramCase) -> Iterator[Finding]:
    """Operations that not every rank reaches."""
    way = WAYS[row.code]
    for parting in case.partings:
        if way.concerns(parting):
            yield _parted(row, way.cause(parting) or row.cause, parting)


def _parted(row: RuleRow, cause: str, parting: Parting) -> Finding:
    """A finding on one parting: first the operation, then the way from it back to what differs.

    A loop that is left early is told where it is left: all calls of the loop lie behind that decision.
    """
    kind, filled = main_kind(parting), words(parting)
    path = (parting.concerned.ref, *parting.via, parting.at)
    decided = parting.shape == "break" or (parting.shape == "while" and parting.test != "True")
    refs = (*(path[::-1] if decided else path), *(reason.ref for reason in parting.reasons))
    says = row.more.get(f"says_{parting.shape}", row.says)
    other = row.more.get(f"fix_{parting.concerned.name}")
    fix = (other,) if other else tuple(step.format(**filled) for step in row.fix)
    severity: Severity = "error" if kind in BY_RANK else "warning"
    grade = Grade.PROVES if kind in _CERTAIN else Grade.SUPPORTS
    return _found(row, "hang", severity, grade, says.format(**filled), refs, fix, cause)


def _found(
    row: RuleRow,
    category: Category,
    severity: Severity,
    grade: Grade,
    message: str,
    refs: tuple[Ref, ...],
    fix: tuple[str, ...] = (),
    cause: str = "",
) -> Finding:
    first = refs[0]
    subject = Subject(code=(CodePlace(first.source, first.line),))
    return Finding(
        row.code, cause or row.cause, category, severity, grade, subject, message, tuple(dict.fromkeys(refs)),
        fix or row.fix, kind="code",
    )  # fmt: skip
