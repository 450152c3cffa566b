"""Whose lines are those that `srun --label` numbers: of ranks where Slurm starts every rank itself, of hosts where it
starts a launcher on each.

The tasks are ranks where lines of several tasks name just that rank, or where srun says that one host ran several of
them, and nothing contradicts it. They are hosts where the launch says so and the number of each host is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import structs
from msgspec.structs import replace

from whichrank.records.events.base import Event
from whichrank.records.events.launchers import ElasticFailure, ElasticSignal, HostOutOfMemory, JobEnded, ProcessExit
from whichrank.records.placement import Layout
from whichrank.timeline.identity.layouts import numbers

_SEVERAL = 2
_OF_THE_JOB = (ProcessExit, JobEnded, ElasticFailure, ElasticSignal, HostOutOfMemory)
"""What launchers and schedulers say of others, whoever's output it stands in."""
_ENDED = re.compile(r"\b(?:JOB|STEP) (\d{1,12})(?:\.\w{1,12})? ON ")
_STEP = re.compile(r"\bStepId=(\d{1,12})\b")


def without_other_jobs(pile: Sequence[Any]) -> list[Any]:
    """The records, without the kills in steps of other jobs, where Slurm says in the same text which job it ended."""
    own: dict[str, set[str]] = {}
    for record in pile:
        if isinstance(record, JobEnded) and (told := _ENDED.search(record.ref.quote)):
            own.setdefault(record.ref.source, set()).add(told[1])
    return [r for r in pile if not own or not isinstance(r, Event) or not _of_another(r, own)]


def _of_another(event: Event, own: dict[str, set[str]]) -> bool:
    step = _STEP.search(event.ref.quote) if event.ref.source in own else None
    return step is not None and step[1] not in own[event.ref.source] and "oom" in event.ref.quote


def with_tasks(pile: Sequence[Any]) -> list[Any]:
    """The records of this job, with the rank or the host of labelled lines that name neither."""
    pile = without_other_jobs(pile)
    events = [record for record in pile if isinstance(record, Event)]
    labelled = {event.task for event in events if event.task is not None}
    if not labelled:
        return list(pile)
    exits = [event for event in events if isinstance(event, ProcessExit)]
    last = _last_rank(events, exits)
    if last >= max(labelled):
        return [_of_rank(r) if isinstance(r, Event) else r for r in pile]
    layouts = [record for record in pile if isinstance(record, Layout)]
    found = numbers(layouts, exits) if any(layout.one_task for layout in layouts) else {}
    hosts = {number: host for host, number in found.items()}
    return [_on_node(r, hosts) if isinstance(r, Event) else r for r in pile] if hosts else list(pile)


def _last_rank(events: Iterable[Event], exits: Sequence[ProcessExit]) -> int:
    """The last of the ranks, where tasks are ranks; else -1."""
    pairs, launched = set(), False
    for event in events:
        if event.task is not None and event.rank is not None:
            pairs.add((event.task, event.rank))
        by_agent = isinstance(event, ProcessExit) and event.by == "elastic"
        launched = launched or by_agent or isinstance(event, ElasticFailure | ElasticSignal)
    if launched or any(task != rank for task, rank in pairs):
        return -1
    placed = {(event.host, task) for event in exits if event.host for task in event.tasks}
    crowded = len({host for host, _ in placed}) < len(placed)
    ranks = {rank for _, rank in pairs} | ({task for _, task in placed} if crowded else set())
    return max(ranks) if len(pairs) >= _SEVERAL or crowded else -1


def _of_rank(event: Event) -> Event:
    if event.task is None or event.rank is not None or isinstance(event, _OF_THE_JOB):
        return event
    return structs.replace(event, rank=event.task, ref=replace(event.ref, rank=event.task))


def _on_node(event: Event, hosts: dict[int, str]) -> Event:
    of_job = isinstance(event, JobEnded | HostOutOfMemory)
    host = hosts.get(event.task) if event.task is not None and event.host is None and not of_job else None
    return structs.replace(event, host=host, ref=replace(event.ref, host=host)) if host else event
