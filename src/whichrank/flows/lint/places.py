"""What `lint` says of the places that a diagnosis names: the path that made the ranks differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from whichrank.flows.lint.check import lint
from whichrank.model.errors import WhichrankError
from whichrank.model.findings import Finding
from whichrank.model.verdict import Excerpt

# A finding names the operation, the condition and the calls between; the run stands at one of them.
MOST_FINDINGS, MOST_STEPS = 2, 4


def explained(source: Path, excerpts: Sequence[Excerpt]) -> tuple[Excerpt, ...]:
    """The excerpts with the findings on the same lines; as they are where the code can't be read."""
    if not excerpts:
        return ()
    try:
        findings = lint([source], select=["LINT1"]).findings
    except WhichrankError:
        return tuple(excerpts)
    return tuple(replace(excerpt, said=_said(excerpt, findings)) for excerpt in excerpts)


def _said(excerpt: Excerpt, findings: Sequence[Finding]) -> tuple[str, ...]:
    here = [f for f in findings if any(_names(excerpt, ref.source, ref.line) for ref in f.evidence)]
    lines: list[str] = []
    for finding in here[:MOST_FINDINGS]:
        lines.append(f"{finding.code}: {finding.message}")
        lines += [f"{ref.source}, {ref.locator}: {ref.quote}" for ref in finding.evidence[1 : MOST_STEPS + 1]]
    return tuple(lines)


def _names(excerpt: Excerpt, source: str, line: int) -> bool:
    return source == Path(excerpt.path).as_posix() and line == excerpt.place.line
