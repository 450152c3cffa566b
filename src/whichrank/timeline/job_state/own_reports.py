"""Reports that `whichrank run` printed into the output of a job: what they quote is not said a second time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from whichrank.records.events.base import Event
from whichrank.records.events.messages import KnownMessage

BEGIN, END = "own-verdict", "own-report-end"
_LONGEST = 400
"""Lines of a report whose end is missing."""


def without_own_reports(records: Iterable[Any]) -> list[Any]:
    """All records but the events and messages that were read inside of such a report."""
    pile = list(records)
    reports = _reports(r for r in pile if isinstance(r, KnownMessage) and r.signature in (BEGIN, END))
    return [r for r in pile if not _quoted(r, reports)] if reports else pile


def _reports(marks: Iterable[KnownMessage]) -> dict[str, list[range]]:
    """By file, the lines of its reports."""
    found: dict[str, list[range]] = defaultdict(list)
    ends: dict[str, list[int]] = defaultdict(list)
    begins: dict[str, list[int]] = defaultdict(list)
    for mark in marks:
        (begins if mark.signature == BEGIN else ends)[mark.ref.source].append(mark.line)
    for source, lines in begins.items():
        for line in lines:
            end = min((e for e in ends[source] if e > line), default=line + _LONGEST)
            found[source].append(range(line, min(end, line + _LONGEST) + 1))
    return found


def _quoted(record: Any, reports: dict[str, list[range]]) -> bool:
    if not isinstance(record, Event) or (isinstance(record, KnownMessage) and record.signature in (BEGIN, END)):
        return False
    return any(record.line in lines for lines in reports.get(record.ref.source, ()))
