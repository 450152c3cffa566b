"""What must differ from host to host and does not, or the other way round."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.records.launches import Launch
from whichrank.records.settings import MEETING, SIZE, UNKNOWN, Clash, SettingsFile
from whichrank.source.places.own_values import NAMES_ITSELF, OWN_HOST, SAME_HOST


def one_name(file: SettingsFile) -> Iterator[Clash]:
    """NCCL_HOSTID as a text that all hosts of the job get."""
    for launch in file.launches:
        if launch.one_name is not None and (launch.several or launch.spread):
            yield Clash(launch.one_name.name, launch.one_name.ref, SAME_HOST, OWN_HOST, (launch.ref,))
    several = [
        each
        for each in file.launches
        if (each.several or ((each.spread or of_many(each)) and each.everywhere))
        and (not each.host or _by_all_hosts(each))
        and not _by_itself(each)
    ]
    for each in file.assignments if several else ():
        if each.name == "NCCL_HOSTID" and each.value and each.how not in {"local", "build"}:
            yield Clash(each.name, each.ref, SAME_HOST, OWN_HOST, (several[0].ref,))


def _by_all_hosts(launch: Launch) -> bool:
    """A line that names the part of one file (a service) alone: each host runs it, with a number of its own."""
    rank = launch.rank.text if launch.rank is not None else ""
    return (UNKNOWN in rank or "$" in rank) and launch.nodes is not None


def of_many(launch: Launch) -> bool:
    """A rank that a scheduler or MPI starts on the hosts of a list, unless that is known to have one."""
    return not launch.program and (launch.hosts is None or launch.hosts.number > 1)


def early(launch: Launch) -> Iterator[Clash]:
    """What only a task knows, put in by the script that starts the tasks."""
    for told in launch.early:
        if not launch.numbered and re.fullmatch(r"--(?:node|machine)[-_]rank|PET_NODE_RANK", told.name):
            continue
        why = f"{told.text} is filled in by the script before the tasks start: all of them get the same value"
        fix = f"Quote it for the task's own shell: bash -c '… {told.text} …'."
        yield Clash(told.name, told.ref, why, fix, (launch.ref,), cause=SIZE)


def values(launch: Launch) -> Iterator[Clash]:
    """What must differ from host to host and does not, or the other way round."""
    rank = launch.rank
    if rank is not None and rank.text.isdecimal() and launch.numbered and not launch.host:
        why = f"every host runs this line, so each of them is host {rank.text}"
        fix = "Take it from the scheduler: $SLURM_NODEID, $SKYPILOT_NODE_RANK, the index of the pod."
        yield Clash(rank.name, rank.ref, why, fix, (launch.ref,), cause=SIZE)
    yield from _drawn(launch)
    if launch.last is not None and launch.numbered:
        why = "this is the last host of the list, and rank 0, which opens the store there, runs on the first"
        fix = "Take the first host: head -n 1."
        yield Clash(launch.last.name, launch.last.ref, why, fix, (launch.ref,), cause=MEETING)
    yield from names_itself(launch)


def _drawn(launch: Launch) -> Iterator[Clash]:
    for told in launch.drawn:
        why = "it is another one on each host, so they look for each other in different places"
        fix = "Make it once, before the hosts start, for all of them."
        yield Clash(told.name, told.ref, why, fix, (launch.ref,), cause=MEETING)


def is_not_first(launch: Launch) -> bool:
    """The host that runs it is not the first one, which opens the store."""
    rank = launch.rank.text if launch.rank is not None and launch.numbered else "0"
    return rank not in {"0", ""} and (rank.isdecimal() or (UNKNOWN in rank and not launch.host))


def _by_itself(launch: Launch) -> bool:
    """torchrun without --nnodes waits for nobody else."""
    return launch.program == "torchrun" and launch.complete and launch.nodes is None and not launch.spread


def named_apart(launch: Launch) -> Iterator[Clash]:
    """The same for a line of one of several hosts, and for ranks of a list of hosts that nobody knows."""
    one = (launch.several or launch.spread) and is_not_first(launch)
    if one and launch.rank is not None and UNKNOWN in launch.rank.text:
        yield from _drawn(launch)
    if one or (launch.everywhere and of_many(launch)):
        yield from names_itself(launch)


def names_itself(launch: Launch) -> Iterator[Clash]:
    for told in () if _by_itself(launch) else launch.itself:
        fix = "Take the first host of the job before the tasks start, and pass it to all of them."
        yield Clash(told.name, told.ref, NAMES_ITSELF, fix, (launch.ref,), cause=MEETING)
