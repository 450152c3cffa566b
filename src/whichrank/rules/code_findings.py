"""What the rules on code share: the proof, the words for reasons, and which of them speaks of a parting."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeGuard

from whichrank.model.evidence import Ref
from whichrank.model.findings import Category, CodePlace, Finding, Grade, NotEvaluated, Severity, Subject
from whichrank.records.code import Habit, Operation, Parting, ProgramCase, Reason

BY_RANK = frozenset({"rank", "part", "host"})
WRAPPED = frozenset({
    "ddp", "fsdp", "deepspeed", "wrapped_output", "accelerator", "metric", "lightning_module", "trainer", "fabric",
    "hf_trainer",
})  # fmt: skip
"""Where a call hides its collective: what the operation's receiver is."""
_CERTAIN = frozenset({"rank", "host", "data", "time"})
"""What differs between ranks by its nature."""
_FIRST = re.compile(
    r"(?:rank|proc|local|node|id)\w{0,60}\W.{0,160}\b0\b|main|master|zero|first|leader(?!s)", re.IGNORECASE
)
"""A condition that asks for the first rank."""
_NODE = re.compile(r"node|GROUP_RANK", re.IGNORECASE)
"""A number that all ranks of a host share."""
NO_PROGRAM = NotEvaluated("a Python program that communicates")


def is_program(case: Any) -> TypeGuard[ProgramCase]:
    """Whether there is something to judge."""
    return isinstance(case, ProgramCase)


def main_kind(parting: Parting) -> str:
    return parting.reasons[0].kind if parting.reasons else ""


def hidden(parting: Parting) -> bool:
    """Whether the operation is inside a call that does not look like one."""
    return parting.concerned.detail in WRAPPED


def on_one_rank(parting: Parting) -> bool:
    """Whether one rank, or one on every host, is alone in it: `rank == 0`, `args.local_rank in (-1, 0)`."""
    if main_kind(parting) != "rank" or (parting.here and parting.there):
        return False
    if parting.doers is None and _NODE.search(parting.reasons[0].what):
        return False
    return parting.doers == 1 or (parting.doers is None and _FIRST.search(parting.test) is not None)


def makes_group(parting: Parting) -> bool:
    return parting.concerned.kind in {"group", "init"}


def same_in_other_order(parting: Parting) -> bool:
    """Whether both sides do the same operations, in another order."""
    here, there = _names(parting.here), _names(parting.there)
    return here != there and len(here) > 1 and sorted(here) == sorted(there)


def _names(operations: tuple[Operation, ...]) -> list[tuple[str, str]]:
    return [(op.name, op.group) for op in operations]


def shown(operation: Operation) -> str:
    """The operation as people call it."""
    words = {
        "ddp": "DistributedDataParallel", "fsdp": "a sharded model", "deepspeed": "a DeepSpeed engine",
        "wrapped_output": "a wrapped model", "accelerator": "Accelerate", "metric": "a metric", "fabric": "Fabric",
    }  # fmt: skip
    on = words.get(operation.detail)
    return f"{operation.name} of {on}" if on else operation.name


def because(reasons: tuple[Reason, ...]) -> str:
    """Why ranks differ, in words."""
    if not reasons:
        return "a value that differs between ranks"
    first = reasons[0]
    return f"{first.what} ({_at(first.ref)})"


def _at(ref: Ref) -> str:
    return f"{ref.source.rpartition('/')[2]} {ref.locator}"


def parted(code: str, cause: str, parting: Parting, message: str, fix: tuple[str, ...]) -> Finding:
    """A finding on one parting: first the operation, then the way from it back to what differs.

    A loop that is left early is told where it is left: all calls of the loop lie behind that decision.
    """
    kind = main_kind(parting)
    way = (parting.concerned.ref, *parting.via, parting.at)
    decided = parting.shape == "break" or (parting.shape == "while" and parting.test != "True")
    refs = (*(way[::-1] if decided else way), *(reason.ref for reason in parting.reasons))
    severity: Severity = "error" if kind in BY_RANK else "warning"
    return told(code, cause, "hang", severity, Grade.PROVES if kind in _CERTAIN else Grade.SUPPORTS, message, refs, fix)


def told(
    code: str,
    cause: str,
    category: Category,
    severity: Severity,
    grade: Grade,
    message: str,
    refs: tuple[Ref, ...],
    fix: tuple[str, ...],
) -> Finding:
    first = refs[0]
    line = int(first.locator.rpartition(" ")[2])
    subject = Subject(code=(CodePlace(first.source, line),))
    evidence = tuple(dict.fromkeys(refs))
    return Finding(code, cause, category, severity, grade, subject, message, evidence, fix, kind="code")


def habit(code: str, cause: str, severity: Severity, found: Habit, fix: tuple[str, ...]) -> Finding:
    message = found.said[:1].upper() + found.said[1:] + "."
    category: Category = "corruption" if cause == "replica-divergence" else "config"
    return told(code, cause, category, severity, Grade.SUPPORTS, message, (found.ref, *found.others), fix)


class Said(NamedTuple):
    """What a rule says of one place."""

    message: str
    fix: tuple[str, ...]
    cause: str = ""
    """Where it is not the rule's own."""


def on_partings(
    case: Any, rule: tuple[str, str], concerns: Callable[[Parting], bool], say: Callable[[Parting], Said]
) -> list[Finding] | NotEvaluated:
    """A finding for every parting that concerns a rule, given by its code and cause."""
    if not is_program(case):
        return NO_PROGRAM
    code, cause = rule
    found = []
    for parting in case.partings:
        if concerns(parting):
            said = say(parting)
            found.append(parted(code, said.cause or cause, parting, said.message, said.fix))
    return found


def local_decision(parting: Parting) -> bool:
    """A branch that every rank decides for itself, on something other than its rank."""
    by_itself = parting.shape == "branch" and main_kind(parting) not in BY_RANK
    return by_itself and not makes_group(parting) and not same_in_other_order(parting)


def on_disagreements(
    case: Any, rule: tuple[str, str], about: str, grade: Grade, fix: str
) -> list[Finding] | NotEvaluated:
    """A finding for every operation that ranks call with different arguments of one kind."""
    if not is_program(case):
        return NO_PROGRAM
    found = []
    for apart in case.disagreements:
        if apart.about == about:
            refs = (apart.operation.ref, *(reason.ref for reason in apart.reasons))
            message = f"Ranks disagree in {apart.operation.name}: {apart.said}."
            found.append(told(*rule, "corruption", "error", grade, message, refs, (fix,)))
    return found


def on_habits(
    case: Any, rule: tuple[str, str], what: str, severity: Severity, fix: str
) -> list[Finding] | NotEvaluated:
    """A finding for every habit of one kind."""
    if not is_program(case):
        return NO_PROGRAM
    return [habit(*rule, severity, found, (fix,)) for found in case.habits if found.what == what]
