"""A rehearsal for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from whichrank import __version__
from whichrank.report._words import counted, ranges, safe
from whichrank.report.json import coverage, finding

if TYPE_CHECKING:
    from whichrank.model.evidence import Coverage
    from whichrank.model.findings import Finding


def as_document(
    *, world: int, rehearsed: bool, reason: str, divergence: dict[str, Any] | None, findings: list[Finding],
    looked: Coverage, runs: list[dict[str, Any]], torch: str | None,
) -> dict[str, Any]:  # fmt: skip
    """The plain values that the schema `rehearse` describes."""
    return {
        "schema_version": 1,
        "tool": {"name": "whichrank", "version": __version__},
        "world_size": world,
        "rehearsed": rehearsed,
        "reason": reason or None,
        "torch": torch,
        "divergence": divergence,
        "runs": runs,
        "findings": [finding(index, found) for index, found in enumerate(findings)],
        "coverage": coverage(looked),
    }


def text(document: dict[str, Any]) -> Iterator[str]:
    """For a terminal: what parts the ranks, both sides with their stacks, what to do, what was rehearsed."""
    for found in document["findings"]:
        yield from _finding(found)
    if document["divergence"]:
        yield from _sides(document["divergence"])
    if not document["rehearsed"]:
        yield f"Not rehearsed: {safe(document['reason'] or 'unknown')}.\n"
    elif not document["findings"]:
        yield f"No divergence found with {counted(document['world_size'], 'rank')}.\n"
    yield "\nRehearsed:\n"
    for run in document["runs"]:
        end = OUTCOMES.get(run["outcome"], run["outcome"])
        size = f"{counted(run['calls'], 'call')} compared, {counted(run['steps'], 'step')}, {run['seconds']:.1f} s"
        yield f"  {safe(run['what'])}: {end}, {size}\n"
    for source in document["coverage"]["sources"]:
        if source["note"]:
            yield f"  note: {safe(source['note'])}\n"
    for skipped in document["coverage"]["rules"]["not_evaluated"]:
        yield f"  not tried: {safe(skipped['missing'])}\n"


OUTCOMES = {
    "finished": "ran to its end",
    "steps": "stopped after the steps that were asked for",
    "limit": "stopped by the time limit",
    "diverged": "the ranks diverged",
    "crashed": "a rank failed",
    "drifted": "the replicas drifted apart",
    "stuck": "a rank got stuck",
    "late": "a rank kept the others waiting for too long",
    "unfinished": "ended with calls that don't fit",
    "failed": "could not be run",
}


def _finding(found: dict[str, Any]) -> Iterator[str]:
    yield f"{found['severity']}: {safe(found['message'])} [{found['code']}, {found['cause']}]\n"
    for ref in found["evidence"][:6]:
        who = f" (rank {ref['rank']})" if ref["rank"] is not None else ""
        yield f"    {safe(ref['source'])}, {safe(ref['locator'])}{who}\n        {safe(ref['quote'])}\n"
    for step in found["fix"]:
        yield f"    fix: {safe(step)}\n"


def _sides(divergence: dict[str, Any]) -> Iterator[str]:
    yield "\nWhere the ranks stood:\n"
    for side in divergence["sides"][:8]:
        what = "ended" if side["state"] == "ended" else f"in {safe(str(side['op']))}"
        yield f"  rank {ranges(side['ranks'])}: {what}\n"
        for frame in (side.get("stack") or [])[:8]:
            yield f"      {safe(frame['file'])}:{frame['line']} in {safe(frame['function'])}\n"
