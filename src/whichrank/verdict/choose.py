"""From findings to one verdict: the root first, its consequences behind it, other faults beside it.

Several rules often see the same fault from different sides: the dumps say that rank 5 did not come, its stack says
that it reads from storage, the launcher says that it was killed at the end. The root is the finding that explains
most and says most: an explicit cause beats one that only says "it did not come", and what began first beats what
followed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from whichrank.model.findings import Alternative, Finding, Subject
from whichrank.model.verdict import Verdict

_URGENCY = {"hang": 0.0, "crash": 0.0, "corruption": 0.15, "config": 0.3, "slow": 0.3}
_SEVERITY = {"error": 0.0, "warning": 0.5, "info": 2.0}
# These say that something did not happen, not why: any cause for the same ranks says more.
GENERIC = {"collective-desync": 0.3, "collective-stalled": 0.3, "rank-killed": 0.1, "unknown": 0.6, "store-lost": 0.2}
# How a job that already stands still usually ends: a person, the scheduler or the watchdog takes it down.
ENDINGS = {"job-ended-from-outside": 0.35, "watchdog-blocked": 0.1, "timeout-too-short": 0.1}
# Being late is said by the clock; these say why the same rank is.
WHY_LATE = frozenset({"gpu-thermal-or-power", "pcie-degraded", "cpu-starved"})
MAX_ALTERNATIVES = 3
# Two faults are told apart in time when they are this far apart: log stamps are good to a second, clocks differ.
APART_NS = 3_000_000_000
SURE = 0.6


@dataclass(slots=True)
class Choice:
    """The verdict, and how the findings hang together."""

    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    consequence_of: dict[int, tuple[int, ...]] = field(default_factory=dict)
    incidents: tuple[Verdict, ...] = ()


def choose(findings: Sequence[Finding], *, looked_at: str, enough: bool) -> Choice:
    """One verdict. `looked_at` says what "healthy" may be said of; not `enough` makes silence unknown."""
    telling = [finding for finding in findings if finding.severity != "info"]
    if not telling:
        return Choice(_nothing_found(looked_at, enough, findings), tuple(findings))
    root = _root(telling)
    ordered = (root, *sorted((f for f in findings if f is not root), key=lambda f: (-_weight(f), f.code)))
    followers = {i: (0,) for i, f in enumerate(ordered) if f is not root and _follows(f, root)}
    readings = [ordered[i] for i in followers]
    others = [f for i, f in enumerate(ordered) if f is not root and i not in followers and f.severity != "info"]
    return Choice(_verdict(root, readings), ordered, dict(followers), tuple(_verdict(f, []) for f in others))


def _weight(finding: Finding) -> float:
    """How much a finding has to say as the root of everything."""
    less = GENERIC.get(finding.cause, 0.0) + ENDINGS.get(finding.cause, 0.0)
    return finding.confidence - less - _URGENCY.get(finding.category, 0.5) - _SEVERITY[finding.severity]


def _root(findings: Sequence[Finding]) -> Finding:
    """The weightiest finding, unless an explicit cause that is nearly as sure began clearly earlier."""
    best = max(findings, key=lambda f: (_weight(f), f.code))
    for other in findings:
        if (
            other is best
            or other.onset_ns is None
            or best.onset_ns is None
            or other.cause in GENERIC
            or other.cause in ENDINGS
        ):
            continue
        earlier = best.onset_ns - other.onset_ns > APART_NS
        if earlier and other.confidence >= SURE and _weight(other) > _weight(best) - 0.25:
            best = other
    if best.cause == "straggler":
        late = set(best.subject.ranks)
        why = (f for f in findings if f.cause in WHY_LATE and f.confidence >= SURE and late == set(f.subject.ranks))
        return next(why, best)
    return best


def _follows(finding: Finding, root: Finding) -> bool:
    """Another reading of the same fault, its end, or what it did to its victims."""
    if finding.cause in ENDINGS or finding.cause in GENERIC:
        return True
    mine, theirs = set(finding.subject.ranks), set(root.subject.ranks)
    if finding.category == "config":
        return False
    if finding.category == "slow":
        return mine <= theirs | set(root.victims)
    later = finding.onset_ns is None or root.onset_ns is None or finding.onset_ns >= root.onset_ns - APART_NS
    return bool(mine & theirs) or not mine or (later and mine <= set(root.victims))


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
    seen = [
        Alternative(f.cause, f.confidence, f.message)
        for f in readings
        if f.cause not in GENERIC and f.cause not in ENDINGS
    ]
    offered = sorted([*root.alternatives, *seen], key=lambda a: -a.confidence)
    left = round(1.0 - root.confidence, 2)
    taken: list[Alternative] = []
    for alternative in offered:
        if alternative.cause == root.cause or any(a.cause == alternative.cause for a in taken):
            continue
        share = round(min(alternative.confidence, left * 0.7 if len(offered) > 1 else left), 2)
        if share > 0 and len(taken) < MAX_ALTERNATIVES:
            taken.append(Alternative(alternative.cause, share, alternative.why))
            left = round(left - share, 2)
    return tuple(taken)


def _nothing_found(looked_at: str, enough: bool, noted: Sequence[Finding] = ()) -> Verdict:
    if enough:
        return Verdict("healthy", "healthy", Subject(), (), 0.8, f"Nothing wrong found in {looked_at}.")
    told = (
        f"Not enough evidence to say anything: {looked_at}."
        if looked_at
        else "Nothing that whichrank can read was found."
    )
    # What was only noted accuses nobody, but it is where to look first.
    named = [Alternative(f.cause, f.confidence, f.message) for f in noted if f.cause != "unknown"]
    possible = sorted([*named, *(a for f in noted for a in f.alternatives)], key=lambda a: -a.confidence)
    return Verdict("unknown", "unknown", Subject(), (), 0.0, told, alternatives=tuple(possible[:MAX_ALTERNATIVES]))
