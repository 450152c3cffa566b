"""Ranks that do not agree on a setting that all must share.

What it finds: in captured environments of several ranks, variables that must be equal and are not, a missing
one counting as the default; in manifests, containers that give such a variable different values.

Why it happens: one host has another profile, image or nccl.conf, or one container of a job was edited.

How it decides: by the catalogue's column of what must match. The ranks in the minority are named; where there
is no majority, all are.

Example: NCCL_ALGO=Ring on rank 3 and nowhere else: that rank runs another algorithm than the rest and hangs.

Fix: set it from one place for all ranks.

Limits: services of compose that are jobs of their own (a launcher for one host, other profiles) may differ.
Programs that set variables after their environment was captured are not seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from whichrank.facts.variables.environment import must_match
from whichrank.model.evidence import Ref
from whichrank.model.findings import Finding, NotEvaluated, Subject
from whichrank.records.settings import Assignment, Settings, SettingsFile, flagged

CODE = "ENV113"
CAUSE = "wrong-environment"

_LAUNCH = frozenset({"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"})
_SHOWN = 8


def judge(settings: Settings) -> list[Finding] | NotEvaluated:
    scopes = [scope for scope in settings.scopes() if scope]
    captured = [scope for scope in scopes if next(iter(scope.values())).how == "process"]
    found = [*_captured(captured), *_manifests(settings)]
    if not found and len(captured) < 2 and not any(f.kind == "manifest" for f in settings.files):
        return NotEvaluated("captured environments of two or more ranks")
    return found


def _must_match(name: str) -> bool:
    return name in _LAUNCH or must_match(name)


def _captured(scopes: list[dict[str, Assignment]]) -> Iterator[Finding]:
    names = sorted({name for scope in scopes for name in scope if _must_match(name)})
    for name in names if len(scopes) > 1 else ():
        yield from _compare(name, scopes)


def _compare(name: str, scopes: list[Mapping[str, Assignment]] | list[dict[str, Assignment]]) -> Iterator[Finding]:
    values = [scope[name].value if name in scope else None for scope in scopes]
    counts = Counter(values)
    if len(counts) < 2:
        return
    (common, most), (_, second) = counts.most_common(2)
    odd = [scope for scope, value in zip(scopes, values, strict=True) if value != common or most == second]
    holder = next(scope[name] for scope in [*odd, *scopes] if name in scope)
    refs = tuple(_ref(name, scope) for scope in odd[:_SHOWN])
    witness = next((_ref(name, s) for s, v in zip(scopes, values, strict=True) if v == common and s not in odd), None)
    ranks = tuple(sorted(rank for scope in odd if (rank := _rank(scope)) is not None))
    who = f"ranks {', '.join(map(str, ranks[:_SHOWN]))}" if ranks else f"{len(odd)} of {len(scopes)} environments"
    shown = ", ".join(f"{_shown(value)} ({count})" for value, count in counts.most_common(4))
    finding = flagged(CODE, holder, "error", f"{name} must be the same on every rank and is not: {shown}; odd: {who}.")
    yield Finding(
        code=CODE,
        cause=CAUSE,
        category="config",
        severity="error",
        grade=finding.grade,
        kind="settings",
        subject=Subject(ranks=ranks, hosts=tuple(sorted({h for s in odd if (h := _host(s))}))),
        message=finding.message,
        evidence=(*refs, *((witness,) if witness else ())),
        fix=(f"Set {name} from one place for all ranks, or nowhere.",),
    )


def _ref(name: str, scope: Mapping[str, Assignment]) -> Ref:
    if name in scope:
        return scope[name].ref
    some = next(iter(scope.values())).ref
    return Ref(some.source, "whole file", f"{name} is not set", some.rank, some.host)


def _rank(scope: Mapping[str, Assignment]) -> int | None:
    return next((a.ref.rank for a in scope.values() if a.ref.rank is not None), None)


def _host(scope: Mapping[str, Assignment]) -> str | None:
    return next((a.ref.host for a in scope.values() if a.ref.host), None)


def _shown(value: str | None) -> str:
    return "not set" if value is None else f"'{value}'"


def _manifests(settings: Settings) -> Iterator[Finding]:
    """Different values in containers of one job, or a value in one of several that run the same image."""
    for file in settings.files:
        seen: dict[tuple[str, str], Assignment] = {}
        for a in file.assignments:
            if not _must_match(a.name) or a.value is None or a.how != "manifest":
                continue
            earlier = seen.setdefault((a.scope.rpartition(":")[0], a.name), a)
            if earlier.scope != a.scope and earlier.value != a.value:
                message = f"{a.name} is '{earlier.value}' in one container and '{a.value}' in another."
                yield flagged(CODE, a, "warning", message, "Give all containers the same value.", also=(earlier.ref,))
        yield from _one_sided(file)


def _one_sided(file: SettingsFile) -> Iterator[Finding]:
    scopes: dict[tuple[str, str], list[str]] = {}
    for scope, image, job in file.containers:
        scopes.setdefault((image, job), []).append(scope)
    for (image, _), members in scopes.items():
        if len(members) < 2 or not image or image.isdecimal():
            continue
        for a in file.assignments:
            if a.scope in members and a.how == "manifest" and a.name not in _LAUNCH and _must_match(a.name):
                without = [s for s in members if not any(b.scope == s and b.name == a.name for b in file.assignments)]
                if without:
                    message = f"{a.name} is set in one container and not in the others, which run the same image."
                    yield flagged(CODE, a, "warning", message, "Set it in all of them, or in none.")
