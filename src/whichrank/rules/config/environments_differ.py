"""Ranks were started with different values of a setting that all must share.

## What it finds
In the environments that a bundle holds, variables that must be equal on all ranks and are not.

## Why it happens
One host has another profile or image, one launch line was edited, a debug switch was left on for one rank.

## How it decides
By the catalogue's column of what must match, a missing variable counting as another value. The ranks in the minority
are named; without a majority, nobody is. It explains a failure or a hang; in a job that runs well it is a warning.

## Example
`TORCH_DISTRIBUTED_DEBUG=DETAIL` on rank 3 and nowhere else: it checks every collective with one of its own, for which
the others never come.

## Fix
Set it from one place for all ranks, or nowhere.

## Limits
What a program sets after its start is not seen.
"""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from whichrank.facts.variables.environment import catalogue
from whichrank.model.evidence import Ref
from whichrank.model.findings import Finding, Grade, NotEvaluated, Subject
from whichrank.records.events.run_state import Environment
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import kernel_events

CODE = "CONF103"
CAUSE = "wrong-environment"

_SHOWN = 8


class _Environment(Struct, frozen=True):
    """What one rank, or the ranks of one host, were started with, as far as it is told."""

    ranks: tuple[int, ...]
    host: str | None
    values: dict[str, str]
    source: str
    locator: str


def judge(case: Case) -> list[Finding] | NotEvaluated:
    told = max(_captured(case), _printed_by_nccl(case), _printed_by_hosts(case), key=len)
    if len(told) < 2:
        return NotEvaluated("the environments of two ranks or more")
    names = sorted({name for each in told for name in each.values if _must_match(name)})
    return [finding for name in names if (finding := _compare(case, name, told)) is not None]


def _captured(case: Case) -> list[_Environment]:
    events = {event.rank: event for event in case.events(Environment) if event.rank is not None}
    return [
        _Environment((rank,), e.host, e.variables, e.ref.source, e.ref.locator if e.line else "variable")
        for rank, e in events.items()
    ]


def _printed_by_hosts(case: Case) -> list[_Environment]:
    """What the launchers of hosts print of their settings."""
    return [
        _Environment(case.people.ranks_on(e.host), e.host, e.variables, e.ref.source, e.ref.locator)
        for e in case.events(Environment)
        if e.rank is None and e.host is not None
    ]


def _printed_by_nccl(case: Case) -> list[_Environment]:
    """NCCL says which of its variables are set, where it prints anything of its start."""
    found = {}
    for process in case.nccl:
        rank = case.people.rank_of(process.pid, process.host)
        # Of an excerpt without the first lines nobody knows what was set.
        if rank is not None and process.inits and process.bootstrap_interface:
            found[rank] = _Environment((rank,), process.host, process.env, process.source, f"line {process.first_line}")
    return list(found.values())


def _must_match(name: str) -> bool:
    variable = catalogue().get(name)
    return variable is not None and variable.must_match


def _compare(case: Case, name: str, told: list[_Environment]) -> Finding | None:
    counts = Counter(_effective(name, each) for each in told)
    if len(counts) < 2:
        return None
    (common, most), (_, second) = counts.most_common(2)
    odd = [each for each in told if _effective(name, each) != common] if most > second else []
    ranks = tuple(sorted({rank for each in odd for rank in _with_fellows(case, each, told)}))
    hosts = tuple(sorted({each.host for each in odd if each.host and not each.ranks}))
    of_ranks = all(len(each.ranks) == 1 for each in told)
    shown = ", ".join(f"{_quoted(value)} on {count}" for value, count in counts.most_common(4))
    failed = kernel_events.failed(case) or case.stands_still
    quoted = sorted(told, key=lambda each: (each not in odd, each.ranks, each.host or ""))[:_SHOWN]
    return Finding(
        code=CODE,
        cause=CAUSE,
        category=("hang" if case.stands_still else "crash") if failed else "config",
        severity="error" if failed else "warning",
        grade=Grade.SUPPORTS if failed else Grade.HINTS,
        kind="settings",
        subject=Subject(ranks=ranks, hosts=hosts),
        message=f"{name} must be the same on every rank and is not: {shown} {'ranks' if of_ranks else 'hosts'}.",
        evidence=tuple(_ref(name, each) for each in quoted),
        fix=(f"Set {name} from one place for all ranks, or nowhere.",),
        victims=tuple(rank for rank in range(case.world) if rank not in ranks) if ranks else (),
    )


def _with_fellows(case: Case, odd: _Environment, told: list[_Environment]) -> tuple[int, ...]:
    """Its ranks, with all others of its host where each host was asked through one rank: they start from one shell."""
    hosts = [each.host for each in told]
    alone = None not in hosts and len(set(hosts)) == len(hosts) and all(len(each.ranks) == 1 for each in told)
    return case.people.ranks_on(odd.host) or odd.ranks if alone and odd.host else odd.ranks


def _effective(name: str, told: _Environment) -> str | None:
    """None where it is not set, or set to what holds anyway."""
    value = told.values.get(name)
    return None if value == catalogue()[name].default else value


def _ref(name: str, told: _Environment) -> Ref:
    value = told.values.get(name)
    quote = f"{name}={value}" if value is not None else f"{name} is not set"
    locator = f"variable {name}" if told.locator == "variable" else told.locator
    return Ref(told.source, locator, quote[:300], told.ranks[0] if len(told.ranks) == 1 else None, told.host)


def _quoted(value: str | None) -> str:
    return "not set" if value is None else f"'{value[:60]}'"
