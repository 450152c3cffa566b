"""Workers by the order in which their launcher has them: torchrun, and who spawns, start local ranks one by one, so
their pids are in that order; DeepSpeed's launcher ends all of its processes in the order of their local ranks
(`sigkill_handler` in deepspeed/launcher/launch.py)."""

from __future__ import annotations

from collections.abc import Iterable

from whichrank.model.late_pattern import late
from whichrank.records.events.base import Event
from whichrank.records.events.launchers import ElasticSignal
from whichrank.records.host import HostProcess, HostState
from whichrank.records.stack import ProcessStack
from whichrank.timeline.identity.who import People, is_launcher, short_name

_LAUNCHER = late(r"(?:\btorchrun|torch\.distributed\.(?:run|launch))\b")
_WORKERS = late(r"--nproc[-_]per[-_]node[= ](\d{1,4})\b")
_NODES = late(r"--nnodes[= ](?!1(?:\s|$))\S")
_OF_LOADERS = frozenset({"_worker_loop"})
_SPREAD = 16
"""Pids for each rank: processes that were started in a row have pids that lie closer together."""


def note_workers(people: People, states: Iterable[HostState]) -> None:
    """Say whose pid is which rank, where one launcher has started all ranks of the job and nothing known differs."""
    launched = [found for state in states for p in state.processes if (found := _workers(p, state.processes))]
    if len(launched) != 1 or people.world not in (0, len(launched[0])):
        return
    ranks = dict(enumerate(sorted(process.pid for process in launched[0])))
    known = {rank: process.pid for rank, process in people.by_rank.items() if process.pid is not None}
    if any(ranks.get(rank) != pid for rank, pid in known.items()):
        return
    for rank, pid in ranks.items():
        people.note(rank, pid=pid)


def note_ended_workers(people: People, events: Iterable[Event]) -> None:
    """Say whose pid is which rank on a host whose launcher names all of its processes while it ends them."""
    ended: dict[str, dict[int, None]] = {}
    signals = (event for event in events if isinstance(event, ElasticSignal))
    for event in sorted(signals, key=lambda signal: (signal.ref.source, signal.line)):
        if event.what == "closing" and event.host and event.target_pid is not None:
            ended.setdefault(short_name(event.host), {})[event.target_pid] = None
    for host, pids in ended.items():
        here = [people.by_rank[rank] for rank in people.ranks_on(host)]
        by_local = {process.local_rank: process.rank for process in here if process.pid is None}
        if len(by_local) != len(here) or by_local.keys() != set(range(len(pids))):
            continue
        for local, pid in enumerate(pids):
            people.note(by_local[local], pid=pid)


def note_looked_at(people: People, stacks: Iterable[ProcessStack], events: Iterable[Event]) -> None:
    """Say whose pid is which rank, where the stacks are those of all ranks, of one command on one host."""
    bare = [stack for stack in stacks if not is_launcher(stack) and not _loads_data(stack)]
    pids = sorted({stack.pid for stack in bare if stack.pid is not None})
    one_command = len({stack.command for stack in bare}) == 1 and bool(bare[0].command)
    hosts = people.hosts() | {short_name(stack.host) for stack in bare if stack.host}
    ended = {event.target_pid for event in events if isinstance(event, ElasticSignal) and event.what == "closing"}
    world = people.world or (len(pids) if ended == set(pids) else 0)
    told = any(stack.rank is not None or stack.local_rank is not None for stack in bare)
    known = {rank: process.pid for rank, process in people.by_rank.items() if process.pid is not None}
    told = told or any(dict(enumerate(pids)).get(rank) != pid for rank, pid in known.items())
    if told or not one_command or len(hosts) > 1 or not 1 < len(pids) == world or len(bare) != len(pids):
        return
    if pids[-1] - pids[0] < _SPREAD * len(pids):
        for rank, pid in enumerate(pids):
            people.note(rank, pid=pid)


def _loads_data(stack: ProcessStack) -> bool:
    """Whether it is a process that a rank forked to load its data: it has the rank's command."""
    return any(frame.function in _OF_LOADERS for thread in stack.threads for frame in thread.frames)


def _workers(launcher: HostProcess, processes: Iterable[HostProcess]) -> list[HostProcess]:
    """The processes that a launcher of one node has started, where all of them are there."""
    count = _WORKERS.search(launcher.command)
    if count is None or not _LAUNCHER.search(launcher.command) or _NODES.search(launcher.command):
        return []
    children = [process for process in processes if process.parent == launcher.pid]
    return children if len(children) == int(count[1]) > 1 else []
