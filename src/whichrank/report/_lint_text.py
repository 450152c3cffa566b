"""Findings on code as text, with the lines around them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from whichrank.model.evidence import Coverage, Ref
from whichrank.model.findings import Finding
from whichrank.report._paint import Paint, plain
from whichrank.report._words import counted, safe, shortened

AROUND, WIDEST, MOST_STEPS = 2, 160, 6
_ROLES = {"error": "hang", "warning": "slow", "info": "quiet"}


def render(
    findings: Sequence[Finding],
    coverage: Coverage,
    lines: Mapping[str, Sequence[str]],
    shown_as: Mapping[str, str],
    suppressed: int = 0,
    paint: Paint = plain,
) -> Iterator[str]:
    """One block per finding, then what was looked at."""
    for finding in findings:
        yield from _finding(finding, lines, shown_as, paint)
    yield from _summary(findings, coverage, suppressed)


def _finding(
    finding: Finding, lines: Mapping[str, Sequence[str]], shown_as: Mapping[str, str], paint: Paint
) -> Iterator[str]:
    first, *path = finding.evidence
    head = paint(_ROLES[finding.severity], f"{finding.severity}[{finding.code}]")
    yield f"{head}: {safe(finding.message)}\n"
    yield from _frame(first, lines, shown_as, paint)
    for ref in path[:MOST_STEPS]:
        yield f"   = {paint('quiet', 'because')} {_place(ref, shown_as)}: {shortened(safe(ref.quote), WIDEST)}\n"
    for step in finding.fix:
        yield f"   = {paint('heading', 'fix')}: {safe(step)}\n"
    yield "\n"


def _place(ref: Ref, shown_as: Mapping[str, str]) -> str:
    return f"{safe(shown_as.get(ref.source, ref.source))}:{ref.locator.rpartition(' ')[2]}"


def _frame(ref: Ref, lines: Mapping[str, Sequence[str]], shown_as: Mapping[str, str], paint: Paint) -> Iterator[str]:
    yield f"  --> {_place(ref, shown_as)}\n"
    number = ref.line
    text = lines.get(ref.source, ())
    width = len(str(number + AROUND))
    for at in range(max(1, number - AROUND), min(len(text), number + AROUND) + 1):
        mark = paint("command", ">") if at == number else " "
        yield f" {mark} {at:>{width}} | {shortened(safe(text[at - 1].expandtabs(4).rstrip()), WIDEST)}\n"


def _summary(findings: Sequence[Finding], coverage: Coverage, suppressed: int) -> Iterator[str]:
    read = sum(source.quality in {"complete", "partial"} for source in coverage.sources)
    ignored = f", {counted(suppressed, 'finding')} ignored by comment" if suppressed else ""
    yield f"{counted(len(findings), 'finding') if findings else 'No findings'} in {counted(read, 'file')}{ignored}.\n"
    for source in coverage.sources:
        if source.note:
            yield f"  {safe(source.path)}: {safe(source.note)}\n"
    for skipped in coverage.not_evaluated:
        yield f"  not checked ({skipped.code}), missing: {safe(skipped.missing)}\n"
