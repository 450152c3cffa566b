"""Exceptions on one rank: what its handlers skip, and what is called where only it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichrank.source.code.calling.decorating import calls_before
from whichrank.source.code.events import (
    ALIKE,
    Attempt,
    Enter,
    Event,
    Exit,
    First,
    Fork,
    Handler,
    Leave,
    Loop,
    Op,
    Risk,
    blocks,
    ending,
    exits,
)
from whichrank.source.code.index import Function
from whichrank.source.code.paths.differences import Rest, far, in_loop
from whichrank.source.code.paths.sequences import Step, keys
from whichrank.source.code.values import (
    Origin,
    Value,
    differs,
)

if TYPE_CHECKING:
    from whichrank.source.code.analysis import Analysis
    from whichrank.source.code.paths.partings import Judge

BELOW = 2
OWN_FAILURES = frozenset({
    "ConnectionError", "ConnectionResetError", "ConnectionRefusedError", "BrokenPipeError", "TimeoutError", "OSError",
    "IOError", "HTTPError", "URLError", "RequestException", "ClientError", "ReadTimeout", "ConnectTimeout",
    "MemoryError", "OutOfMemoryError", "PermissionError", "EOFError", "UnicodeDecodeError", "JSONDecodeError",
    "ReadTimeoutError",
})  # fmt: skip
"""Errors of the network, of a disk, of a file or of memory: one rank gets them, not all."""
_LEAVING: tuple[Exit, ...] = ("return", "break", "continue", "exit")


def judge_attempt(judge: Judge, event: Attempt, after: Rest, paired: frozenset[int]) -> None:
    repeated = in_loop(after)
    body = judge.sequences.of([*event.body, *event.orelse])
    for handler in event.handlers:
        if handler.types and all(name in ALIKE or judge.analysis.raised_by_all(name) for name in handler.types):
            continue
        caught = judge.sequences.of(handler.body)
        names = {step.op.name for step in body}
        own = bool(handler.types) and set(handler.types) <= OWN_FAILURES
        fallback = bool(body) and not own and _after_risk(judge, event.body, handler.types)[0] is None
        alone = [step for step in caught if step.op.name not in names]  # the others are made again by a retry
        if alone and not fallback and (own or len(alone) == len(caught)):
            reason = Origin("exception", "only a rank that failed gets here", *judge.at(handler.line))
            judge.add("except", [reason], handler.line, "", alone, [])
        elif not handler.raises and not _swallowed(judge, event, handler, caught, repeated):
            _left(judge, event, handler, caught, after)
    stopped = any(
        not h.raises and (not h.types or set(h.types) & {"Exception", "BaseException"}) for h in event.handlers
    )
    final = judge.sequences.of(inner for inner in event.final if id(inner) not in paired)
    manager = "contextmanager" in judge.function.decorators()
    if final and not stopped and (manager or (not judge.generator and event.calls)):
        reason = Origin("exception", "a rank that failed comes here early", *judge.at(event.final_line))
        judge.add("finally", [reason], event.final_line, "", final, [])


def _left(judge: Judge, event: Attempt, handler: Handler, caught: list[Step], after: Rest) -> None:
    """A rank that failed goes on elsewhere, and misses what the others do after the attempt."""
    ways = exits(handler.body)
    kind = ending(handler.body) if ending(handler.body) != "raise" else next((w for w in _LEAVING if w in ways), None)
    found = (_risk(judge, each, handler.types) for each in event.body)
    risk = next((each for each in found if each is not None), None)
    if risk is None or kind not in {"return", "break", "continue", "exit"}:
        return
    skipped = [step for step in judge.skipped_behind(after, kind) if not far(step)]
    if keys(skipped) and keys(caught) != keys(skipped):
        judge.add("swallowed", [risk], handler.line, "", skipped, caught)


def _swallowed(judge: Judge, event: Attempt, handler: Handler, caught: list[Step], repeated: bool) -> bool:
    risk, skipped = _after_risk(judge, event.body, handler.types, event.orelse)
    if risk is None and handler.types and set(handler.types) <= OWN_FAILURES:
        risk, skipped = _called_before(judge, event.body)
    if risk is None and repeated:
        risk, skipped = _read_below(judge, event.body)
    if risk is None or not skipped or keys(caught) == keys(skipped):
        return False
    judge.add("swallowed", [risk], handler.line, "", skipped, caught)
    return True


def _after_risk(
    judge: Judge, events: list[Event], caught: tuple[str, ...], then: list[Event] | None = None
) -> tuple[Origin | None, list[Step]]:
    """What may fail on one rank alone, in a way that is caught, and the operations behind it."""
    for number, event in enumerate(events):
        risk = _risk(judge, event, caught)
        behind = events[number + 1 :]
        if risk is not None:
            own = _behind_inside(judge, event, caught)
            steps = [*own, *judge.sequences.of([*behind, *(then or ())])]
            if steps:
                return risk, steps
    return None, []


def _read_below(judge: Judge, events: list[Event]) -> tuple[Origin | None, list[Step]]:
    """A call that reads something further down, and communicates: a bad sample is caught in the loop."""
    for event in events:
        if isinstance(event, Enter):
            read = _reads(judge.analysis, event.function, BELOW)
            steps = judge.sequences.of([event]) if read is not None else []
            if read is not None and steps:
                return read.origin, steps
    return None, []


def _called_before(judge: Judge, events: list[Event]) -> tuple[Origin | None, list[Step]]:
    """A call that communicates after it called something else, which may fail for a reason of this rank's own."""
    for event in events:
        if isinstance(event, Enter):
            steps = judge.sequences.of([event])
            if steps and calls_before(event.function, steps[0].via[1].line if steps[0].via[1:] else steps[0].op.line):
                what = f"{event.function.name}() may fail on one rank alone"
                return Origin("exception", what, event.caller.module.label, event.line), steps
    return None, []


def _behind_inside(judge: Judge, event: Event, caught: tuple[str, ...]) -> list[Step]:
    if isinstance(event, Fork | Loop | First | Attempt):
        arms = [event.then, event.other] if isinstance(event, Fork) else [event.body]
        for block in arms:
            risk, steps = _after_risk(judge, block, caught)
            if risk is not None:
                return steps
        return judge.sequences.of([event]) if isinstance(event, Loop) else []
    if isinstance(event, Enter):
        return judge.sequences.of([event])
    return []


def _risk(judge: Judge, event: Event, caught: tuple[str, ...]) -> Origin | None:
    if isinstance(event, Risk):
        return event.origin if _catches(caught, event) else None
    if isinstance(event, Op) and event.name == "forward":
        return Origin(
            "exception", "a forward pass may run out of memory on one rank", event.function.module.label, event.line
        )
    if isinstance(event, Enter) and _raises(judge.analysis, event, caught):
        what = f"{event.function.name}() may raise on one rank alone"
        return Origin("exception", what, event.caller.module.label, event.line)
    if isinstance(event, Enter) and any(_local(value) for value in event.arguments.values()):
        what = f"{event.function.name}() may fail on this rank's data"
        return Origin("exception", what, event.caller.module.label, event.line)
    if isinstance(event, Fork) and (raised := _raised_here(event, caught)) and (why := judge.reasons(event.test)):
        return Origin("exception", f"{raised.error} is raised on some ranks", why[0].file, raised.line)
    for block in blocks(event):
        for inner in block:
            if (risk := _risk(judge, inner, caught)) is not None:
                return risk
    return None


def _raised_here(event: Fork, caught: tuple[str, ...]) -> Leave | None:
    """An error that one side of a condition raises, and that is caught by its own name or as any error."""
    leaves = [leave for arm in (event.then, event.other) for leave in arm if isinstance(leave, Leave)]
    any_error = not caught or bool({"Exception", "BaseException"} & set(caught))
    return next((leave for leave in leaves if leave.error and (any_error or leave.error in caught)), None)


_READS = ("open()", "read_text()", "read_bytes()", "urlopen()", "loads()", "int()", "float()", "next()")


def _catches(caught: tuple[str, ...], risk: Risk) -> bool:
    """Whether a handler gets what reading raises: an OSError or a ValueError is no RuntimeError."""
    return not (caught and set(caught) <= {"RuntimeError"} and risk.origin.what.startswith(_READS))


def _raises(analysis: Analysis, call: Enter, caught: tuple[str, ...]) -> bool:
    """Whether a call may raise on one rank alone: it reads something, or raises for what it is given."""
    events = analysis.summary(call.function).events
    if any(isinstance(event, Risk) and _catches(caught, event) for event in events):
        return True
    given = any(name not in {"self", "cls"} for name in call.arguments)
    own = call.function.owner is not None  # what an object holds may be this rank's
    if (given or own) and _may_raise(events):
        return True
    called = [event for event in events if isinstance(event, Enter) and event.function is not call.function]
    return any(_raises_for_itself(analysis, each.function) for each in called)


def _may_raise(events: list[Event]) -> bool:
    """Whether these events may end in an error that the ranks have not agreed on."""
    agreed = False
    for event in events:
        same = isinstance(event, Fork) and not event.test.taint
        if "raise" in exits([event]) and not (agreed and same):
            return True
        agreed = agreed or isinstance(event, Op)
    return False


def _raises_for_itself(analysis: Analysis, function: Function) -> bool:
    """Whether a function raises on a condition that surely differs between ranks."""
    return any(
        isinstance(event, Fork)
        and "raise" in exits([event])
        and differs(event.test)
        and bool(analysis.resolve(event.test.taint))
        for event in analysis.summary(function).events
    )


def _reads(analysis: Analysis, function: Function, depth: int) -> Risk | None:
    """What a function, or one that it calls, reads."""
    for event in analysis.summary(function).events:
        if isinstance(event, Risk):
            return event
        if isinstance(event, Enter) and depth and (found := _reads(analysis, event.function, depth - 1)):
            return found
    return None


def _local(value: Value) -> bool:
    return any(isinstance(origin, Origin) and origin.kind == "data" for origin in value.taint)
