"""Workers in a list of processes: torchrun starts its local ranks one by one, so their pids are in that order."""

from __future__ import annotations

import re
from collections.abc import Iterable

from whichrank.records.host import HostProcess, HostState
from whichrank.timeline.identity.who import People

_LAUNCHER = re.compile(r"(?:\btorchrun|torch\.distributed\.(?:run|launch))\b")
_WORKERS = re.compile(r"--nproc[-_]per[-_]node[= ](\d{1,4})\b")
_NODES = re.compile(r"--nnodes[= ](?!1(?:\s|$))\S")


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


def _workers(launcher: HostProcess, processes: Iterable[HostProcess]) -> list[HostProcess]:
    """The processes that a launcher of one node has started, where all of them are there."""
    count = _WORKERS.search(launcher.command)
    if count is None or not _LAUNCHER.search(launcher.command) or _NODES.search(launcher.command):
        return []
    children = [process for process in processes if process.parent == launcher.pid]
    return children if len(children) == int(count[1]) > 1 else []
