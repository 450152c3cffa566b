"""Whether a rank that seems to have left out an operation comes to it below, in its own arm of a branch."""

from __future__ import annotations

import re
from collections.abc import Sequence

from whichrank.records.dump import Frame
from whichrank.records.outline import Outline

_OPERATION = re.compile(r"_?(?:all_?|reduce|broadcast|gather|scatter|barrier|monitored_barrier)", re.IGNORECASE)


def comes_below(lines: Outline, own: Frame, other: Frame, within: Frame | None) -> bool:
    """Whether the arm in which the rank stands calls, further down, what the other arm calls at the other rank's line.

    `own` and `other` are where the two part in one function; `within` is what the other rank called there."""
    function = lines.function_of(own.file, own.line)
    if function is None or function != lines.function_of(own.file, other.line):
        return False
    wanted = {call for call in _calls_at(lines, own.file, other.line) if _leads_to(call, within)}
    spans = lines.branches.get(own.file, ())
    return any(
        wanted & _calls_at(lines, own.file, line)
        for line in range(own.line + 1, function[1] + 1)
        if _same_arm(spans, own.line, line, other.line)
    )


def _leads_to(call: tuple[str, str], within: Frame | None) -> bool:
    return call[0] == within.function if within is not None else bool(_OPERATION.match(call[0]))


def _same_arm(spans: Sequence[tuple[int, int]], own: int, below: int, other: int) -> bool:
    """Whether who is at one line comes to the one below it, and who is at the other line is in another arm."""
    apart = any(first <= own <= last and first <= below <= last and not first <= other <= last for first, last in spans)
    return apart and not any(first <= below <= last and not first <= own <= last for first, last in spans)


def _calls_at(lines: Outline, file: str, line: int) -> set[tuple[str, str]]:
    return {(name, group) for number, name, group in lines.names_called.get(file, ()) if number == line}
