"""From findings to one verdict: the root first, its consequences behind it, other faults beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from whichrank.model.findings import Alternative, Finding, Subject
from whichrank.model.verdict import Verdict

_URGENCY = {"hang": 0, "crash": 0, "corruption": 1, "config": 2, "slow": 2}
_SEVERITY = {"error": 0, "warning": 1, "info": 2}
MAX_ALTERNATIVES = 3


@dataclass(slots=True)
class Choice:
    """The verdict, and how the findings hang together."""

    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    consequence_of: dict[int, tuple[int, ...]] = field(default_factory=dict)
    incidents: tuple[Verdict, ...] = ()


def choose(findings: Sequence[Finding], *, looked_at: str, enough: bool) -> Choice:
    """One verdict. `looked_at` says what "healthy" may be said of; not `enough` makes silence unknown."""
    ordered = sorted(findings, key=_order)
    telling = [finding for finding in ordered if finding.severity != "info"]
    if not telling:
        return Choice(_nothing_found(looked_at, enough), tuple(ordered))
    root = telling[0]
    followers: dict[int, tuple[int, ...]] = {
        i: (0,) for i, f in enumerate(ordered) if f is not root and _follows(f, root)
    }
    others = [f for i, f in enumerate(ordered) if f is not root and i not in followers and f.severity != "info"]
    return Choice(
        _verdict(root, [f for f in telling[1:] if f not in others]),
        tuple(ordered),
        followers,
        tuple(_verdict(f, []) for f in others),
    )


def _order(finding: Finding) -> tuple[int, int, float, str]:
    return _SEVERITY[finding.severity], _URGENCY.get(finding.category, 3), -finding.confidence, finding.code


def _follows(finding: Finding, root: Finding) -> bool:
    """Slowness of the culprit, or another reading of the same standstill, is no fault of its own."""
    same = set(finding.subject.ranks) <= set(root.subject.ranks) | set(root.victims)
    return same and finding.category in (root.category, "slow")


def _verdict(root: Finding, readings: Sequence[Finding]) -> Verdict:
    return Verdict(
        category=root.category,
        cause=root.cause,
        culprits=root.subject,
        victims=tuple(sorted(root.victims)),
        confidence=root.confidence,
        summary=root.message,
        fix=root.fix,
        alternatives=_alternatives(root, readings),
        certificate=root.certificate,
    )


def _alternatives(root: Finding, readings: Sequence[Finding]) -> tuple[Alternative, ...]:
    """At most three other causes; all confidences together stay within one."""
    offered = list(root.alternatives) + [Alternative(f.cause, f.confidence, f.message) for f in readings]
    left = 1.0 - root.confidence
    taken: list[Alternative] = []
    for alternative in sorted(offered, key=lambda a: -a.confidence):
        if (
            alternative.cause == root.cause
            or alternative.cause in {a.cause for a in taken}
            or len(taken) == MAX_ALTERNATIVES
        ):
            continue
        share = round(min(alternative.confidence, left), 2)
        if share > 0:
            taken.append(Alternative(alternative.cause, share, alternative.why))
            left = round(left - share, 2)
    return tuple(taken)


def _nothing_found(looked_at: str, enough: bool) -> Verdict:
    if enough:
        return Verdict("healthy", "healthy", Subject(), (), 0.8, f"Nothing wrong found in {looked_at}.")
    return Verdict(
        "unknown",
        "unknown",
        Subject(),
        (),
        0.0,
        f"Not enough evidence to say anything: {looked_at}."
        if looked_at
        else "Nothing that whichrank can read was found.",
    )
