"""Which host every rank is on, by how the job was launched: number of the node, processes on each node, local rank.

The number of a node counts where the scheduler gives it and the launcher takes it, or where the host itself says it.
Agents that meet without such a number get theirs in an order that nobody can foresee. All texts must agree with each
other, and with what is known of single ranks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from whichrank.records.events.launchers import ProcessExit
from whichrank.records.placement import Layout

if TYPE_CHECKING:
    from whichrank.records.nccl import NcclProcess

_LABEL = re.compile(r"(\d{1,6}):")

Places = dict[int, tuple[str, int]]
"""Host and local rank of each rank."""


def world_of(layouts: Iterable[Layout]) -> int:
    """How many ranks the launches state; 0 where they differ, or don't say."""
    told = {layout.world for layout in layouts if layout.world}
    return told.pop() if len(told) == 1 else 0


def store_of(layouts: Iterable[Layout]) -> str:
    """The host at which all launches meet."""
    told = {layout.store for layout in layouts if layout.store}
    return told.pop() if len(told) == 1 else ""


def on_one_host(layouts: Iterable[Layout]) -> bool:
    """Whether all launches start all ranks on one host."""
    told = [layout for layout in layouts if layout.per_host or layout.nodes]
    return bool(told) and all(layout.nodes == 1 or layout.world == layout.per_host for layout in told)


def without_gpu(layouts: Sequence[Layout]) -> tuple[int, ...]:
    """The ranks whose local rank is beyond the GPUs that the launch lets a host see."""
    told = {(layout.per_host, layout.visible) for layout in layouts if layout.per_host and layout.visible}
    world = world_of(layouts)
    if len(told) != 1 or not world:
        return ()
    ((count, visible),) = told
    return tuple(rank for rank in range(world) if rank % count >= visible)


def places(layouts: Sequence[Layout], exits: Iterable[ProcessExit]) -> Places:
    """Every rank of the hosts of which the number is known."""
    per_host = {layout.per_host for layout in layouts if layout.per_host}
    if len(per_host) != 1:
        return {}
    (count,) = per_host
    return {
        number * count + local: (host, local)
        for host, number in numbers(layouts, exits).items()
        for local in range(count)
    }


def labelled(layouts: Iterable[Layout], processes: Iterable[NcclProcess]) -> dict[int, str]:
    """The hosts of ranks that `srun --label` numbers, where Slurm starts every rank itself."""
    if not any(layout.by_scheduler and layout.per_host and not layout.one_task for layout in layouts):
        return {}
    told = [(match[1], p.host) for p in processes if p.host and (match := _LABEL.fullmatch(p.launcher))]
    hosts = {int(task): host for task, host in told}
    return hosts if all(hosts[int(task)] == host for task, host in told) else {}


def blocks(layouts: Sequence[Layout], known: Mapping[int, str]) -> dict[int, str]:
    """The hosts of all ranks that are on the same node as one of which the host is known: launchers count the ranks of
    a node one after the other. Nothing where a node has two hosts, or a host two nodes."""
    counts = {layout.per_host for layout in layouts if layout.per_host}
    if len(counts) != 1 or not known:
        return {}
    (count,) = counts
    nodes = {(rank // count, host) for rank, host in known.items()}
    if not len({node for node, _ in nodes}) == len({host for _, host in nodes}) == len(nodes):
        return {}
    return {node * count + local: host for node, host in nodes for local in range(count)}


def numbers(layouts: Sequence[Layout], exits: Iterable[ProcessExit]) -> dict[str, int]:
    """Hosts with the numbers of their nodes."""
    found: dict[str, int] = {}
    sure = any(layout.by_scheduler for layout in layouts)
    lists = {layout.hosts for layout in layouts if layout.hosts}
    tasks = _of_tasks(exits) if any(layout.one_task for layout in layouts) else {}
    ways = [layout.numbered for layout in layouts if layout.numbered]
    if sure and len(lists) == 1:
        ways.append({host: number for number, host in enumerate(lists.pop())})
    if sure and tasks:
        ways.append(tasks)
    for way in ways:
        for host, number in way.items():
            if found.setdefault(host, number) != number:
                return {}
    nodes = {layout.nodes for layout in layouts if layout.nodes}
    fits = len(set(found.values())) == len(found) and all(max(found.values(), default=0) < count for count in nodes)
    return found if fits else {}


def _of_tasks(exits: Iterable[ProcessExit]) -> dict[str, int]:
    """Hosts with the one task that each of them ran."""
    told = {(event.host, task) for event in exits if event.host for task in event.tasks}
    hosts, tasks = {host for host, _ in told}, {task for _, task in told}
    return dict(sorted(told)) if len(hosts) == len(tasks) == len(told) else {}
