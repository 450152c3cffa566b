"""Who is who: pid, host, GPU, global rank, from all evidence together, whatever the files are called.

A process is a host and a pid. What ties it to a global rank: NCCL's communicator over the whole job, the elastic
agent's table, RAS, a file or folder named for a rank. A rank within a smaller group says nothing by itself.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field, structs
from msgspec.structs import replace

from whichrank.model.late_pattern import late
from whichrank.records.events.base import Event, OfGroup
from whichrank.records.events.launchers import ElasticFailure, ElasticSignal, ProcessExit
from whichrank.records.events.startup import CommInit, GroupInit, NotJoined, WorldPlace
from whichrank.records.placement import Layout, Placement
from whichrank.records.stack import ProcessStack, main_thread
from whichrank.timeline.identity import layouts as launched
from whichrank.timeline.identity.nccl_ranks import joined_by_smaller_ones, proxied_ranks, ranks_in_reports, stated_ranks
from whichrank.timeline.identity.runs import LARGEST_WORLD

if TYPE_CHECKING:
    from whichrank.records.nccl import NcclProcess
    from whichrank.records.ras import RasRank, RasReport

# Processes that launch ranks; their stacks are no rank's.
_LAUNCHERS = ("torchrun", "torch.distributed.run", "torch/distributed/run", "accelerate", "deepspeed", "srun", "mpirun")
_DIFFERS = re.compile(r"\d+|(?<=[-_.])[a-z](?![a-z])")
_PLACE = re.compile(r"(?:^|[\s:])[A-Za-z]{1,20}_TP(\d{1,4})$")
"""`sglang::scheduler_TP0`, `VLLM::Worker_TP1`."""
_PART = late(r"[a-z0-9]+")
_MOST_PARTS, _LONGEST_LABEL = 8, 512
_TELL_SIZE = (GroupInit, CommInit, NotJoined, WorldPlace)


class Process(Struct, frozen=True):
    """One rank's process, as far as it is known."""

    rank: int
    pid: int | None = None
    host: str | None = None
    local_rank: int | None = None
    gpu: int | None = None
    bus_id: str | None = None


class People(Struct):
    """All ranks that the evidence knows by process."""

    world: int = 0
    nodes: int = 0
    """How many ranks there are, and on how many hosts by the launch; 0 where nothing says it."""
    by_rank: dict[int, Process] = field(default_factory=dict)
    pods: dict[str, frozenset[str]] = field(default_factory=dict)
    """Node -> its pods, which are the hosts that the job knows."""
    _by_pid: dict[int, set[int]] = field(default_factory=dict)
    """Pid -> ranks; more than one when hosts reuse pids."""

    def note(self, rank: int, **known: object) -> None:
        """Add what a source says of a rank; what is known already stays."""
        old = self.by_rank.get(rank, Process(rank))
        new = {k: v for k, v in known.items() if v is not None and getattr(old, k) is None}
        self.by_rank[rank] = replace(old, **new)
        pid = self.by_rank[rank].pid
        if pid is not None:
            self._by_pid.setdefault(pid, set()).add(rank)

    def rank_of(self, pid: int | None, host: str | None = None) -> int | None:
        """The global rank of a process, if only one fits."""
        if pid is None:
            return None
        found = self._by_pid.get(pid, set())
        if len(found) > 1 and host is not None:
            found = {rank for rank in found if _same_host(self.by_rank[rank].host, host)}
        alone = next(iter(found)) if len(found) == 1 else None
        return alone if alone is None or not _apart(self.by_rank[alone].host, host) else None

    def of_ras(self, listed: RasRank) -> int:
        """The global rank behind a rank of a communicator: by its process, where that is known."""
        known = self.rank_of(listed.pid)
        return listed.rank if known is None else known

    def ranks_on(self, host: str) -> tuple[int, ...]:
        """All ranks that are known to run on a host, or in the pods of a node."""
        pods = self.pods.get(short_name(host), ())
        return self._ranks_on(host) or tuple(sorted({rank for pod in pods for rank in self._ranks_on(pod)}))

    def _ranks_on(self, host: str) -> tuple[int, ...]:
        found = tuple(sorted(rank for rank, process in self.by_rank.items() if _same_host(process.host, host)))
        # A pod `train-xl-worker-2` is also called `worker-2`.
        return found or tuple(sorted(r for r, p in self.by_rank.items() if p.host and _ends_alike(p.host, host)))

    def hosts(self) -> set[str]:
        """The hosts of all ranks, by their short names."""
        return {short_name(p.host) for p in self.by_rank.values() if p.host and p.host != "localhost"}

    def host_of(self, rank: int) -> str | None:
        process = self.by_rank.get(rank)
        return process.host if process else None


def _same_host(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and short_name(one) == short_name(other)


def _ends_alike(one: str, other: str) -> bool:
    short, long = sorted(map(short_name, (one, other)), key=len)
    return long.endswith(f"-{short}")


def _apart(one: str | None, other: str | None) -> bool:
    """Whether two names are those of different hosts of one kind: pods all count their pids from one."""
    return one is not None and other is not None and not _same_host(one, other) and family(one) == family(other)


def short_name(host: str) -> str:
    """A host's name without its domain; an address is kept whole."""
    return host if host.replace(".", "").isdecimal() else host.partition(".")[0].lower()


def family(host: str) -> str:
    """What the names of the hosts of one job have in common: all but numbers and a last letter."""
    return _DIFFERS.sub("#", short_name(host))


def by_short_name(hosts: Iterable[str]) -> dict[str, str]:
    """Hosts by their names without domain; of two that are alike none."""
    found: dict[str, str] = {}
    twice = set()
    for host in sorted(set(hosts)):
        name = short_name(host)
        twice |= {name} & found.keys()
        found[name] = host
    return {name: host for name, host in found.items() if name not in twice}


def host_in_name(label: str, hosts: Mapping[str, str]) -> str | None:
    """The host of which the name of a file or folder speaks: the longest where one name is within another."""
    path = label.lower()[-_LONGEST_LABEL:]
    parts = [match.span() for match in _PART.finditer(path)]
    named = {
        path[begin:end]
        for first, (begin, _) in enumerate(parts)
        for _, end in parts[first : first + _MOST_PARTS]
        if path[begin:end] in hosts
    }
    longest = [name for name in named if len(name) == max(map(len, named))]
    return hosts[longest[0]] if len(longest) == 1 else None


def meet(
    dumped: Iterable[int],
    world: int,
    nccl: Sequence[NcclProcess],
    ras: Sequence[RasReport],
    events: Sequence[Event],
    stacks: Sequence[ProcessStack],
    stated: Sequence[Placement | Layout] = (),
    hosts: Iterable[str] = (),
) -> People:
    """Put together what every source says of pids, hosts and ranks; `stated` is what was written down of it, `hosts`
    are known without their ranks."""
    placements = [place for place in stated if isinstance(place, Placement)]
    people = People(world=max([world, *_sizes(nccl, ras, events), *_listed(placements)], default=0))
    # "localhost" names a host only where nothing else does.
    events = sorted(events, key=lambda event: event.host == "localhost")
    numbered = max((stack.rank + 1 for stack in stacks if stack.rank is not None), default=0)
    _by_launcher_and_nccl(people, nccl, ras, events, numbered)
    _by_list(people, placements, {*hosts, *(e.host for e in events if e.host), *(p.host for p in nccl if p.host)})
    for event in events:
        if event.rank is not None:
            people.note(event.rank, pid=event.pid if not isinstance(event, ElasticSignal) else None, host=event.host)
    told = max([world, *_sizes(nccl, ras, [event for event in events if isinstance(event, _TELL_SIZE)])], default=0)
    launches = [launch for launch in stated if isinstance(launch, Layout)]
    for rank, host in launched.labelled(launches, nccl).items():
        people.note(rank, host=host)
    _by_launch(people, launches, events, told)
    for number in dumped:
        people.note(number)
    for stack in stacks:
        if stack.rank is not None:
            people.note(stack.rank, pid=stack.pid, host=stack.host)
    _by_host_and_local_rank(people, stacks)
    _by_place_in_group(people, stacks)
    _by_local_ranks(people, stacks)
    _last_one_left(people, stacks)
    return people


def _by_launcher_and_nccl(
    people: People, nccl: Sequence[NcclProcess], ras: Sequence[RasReport], events: Sequence[Event], numbered: int
) -> None:
    """The sources that tie a pid to a rank outright: the agent's table, communicators over the whole job. One of fewer
    ranks than are `numbered` is a part of it."""
    whole = max(people.world, numbered)
    if joined_by_smaller_ones(nccl, whole):
        whole = 0
    for event in events:
        if event.rank is not None and isinstance(event, ElasticFailure | ProcessExit):
            people.note(event.rank, pid=event.pid, host=event.host, local_rank=event.local_rank)
    spoken = max((e.rank for e in events if e.rank is not None), default=0)
    spoken = max(spoken, people.world - 1, numbered - 1)
    _by_tasks(people, [event for event in events if isinstance(event, ProcessExit)], spoken)
    for process in nccl:
        for init in process.inits:
            if init.nranks == whole and process.pid is not None:
                people.note(init.rank, pid=process.pid, host=process.host, gpu=init.cuda_dev, bus_id=init.bus_id)
    for rank, process in {**proxied_ranks(nccl), **stated_ranks(nccl)}.items():
        people.note(rank, pid=process.pid, host=process.host)
    for member in ranks_in_reports(ras, whole):
        people.note(member.rank, pid=member.pid, gpu=member.cuda_dev)


def _by_tasks(people: People, exits: Sequence[ProcessExit], spoken: int) -> None:
    """Without torchrun below them the tasks of Slurm are the ranks; `spoken` is the last rank that is heard."""
    if any(event.by == "elastic" for event in exits):
        return
    placed = {(event.host, task) for event in exits if event.host for task in event.tasks}
    hosts, tasks = {host for host, _ in placed}, {task for _, task in placed}
    if len(hosts) == len(placed) > 1 and tasks == set(range(len(hosts))) and spoken >= len(hosts):
        return  # one task on each host, and more ranks than tasks
    for event in exits:
        for task in event.tasks if event.host else ():
            people.note(task, host=event.host)


def _by_list(people: People, placements: Sequence[Placement], hosts: Iterable[str]) -> None:
    """What somebody wrote down; a list without a column of hosts is of the host that its file is named after."""
    names = by_short_name(hosts)
    for place in placements:
        host = place.host or host_in_name(place.ref.source, names)
        people.note(
            place.rank, pid=place.pid, host=host, local_rank=place.local_rank, gpu=place.gpu, bus_id=place.bus_id
        )


def _by_launch(people: People, layouts: Sequence[Layout], events: Sequence[Event], told: int) -> None:
    """The hosts of ranks by the launch, unless one is known elsewhere, or there are more ranks than it starts; and how
    many ranks there are where the job itself has not `told` it."""
    if not layouts:
        return
    size = launched.world_of(layouts)
    people.nodes = max(layout.nodes for layout in layouts)
    if not told and people.world < size <= LARGEST_WORLD:
        people.world = size
    found = launched.places(layouts, [event for event in events if isinstance(event, ProcessExit)])
    known = {rank: host for rank in found if (host := people.host_of(rank)) and host != "localhost"}
    fits = all(_same_host(host, found[rank][0]) for rank, host in known.items())
    if found and fits and people.world <= max(size, 1 + max(found)) <= LARGEST_WORLD:
        for rank, (host, local) in found.items():
            people.note(rank, host=host, local_rank=local)
    named = {rank: host for rank in people.by_rank if (host := people.host_of(rank)) and host != "localhost"}
    for rank, host in launched.blocks(layouts, named).items() if fits else ():
        if rank < people.world <= size:
            people.note(rank, host=host)


def _listed(placements: Sequence[Placement]) -> list[int]:
    return [place.rank + 1 for place in placements if place.rank <= LARGEST_WORLD]


def _sizes(nccl: Sequence[NcclProcess], ras: Sequence[RasReport], events: Sequence[Event]) -> list[int]:
    """World sizes that the sources speak of: the largest communicator, the first group made, the ranks named."""
    sizes = [init.nranks for process in nccl for init in process.inits]
    sizes += [comm.size for report in ras for comm in report.comms]
    sizes += [size for e in events if isinstance(e, _TELL_SIZE) and (size := e.size) is not None]
    sizes += [e.rank + 1 for e in events if e.rank is not None]
    return [size for size in sizes if size <= LARGEST_WORLD]


def with_ranks_of_only_group(events: Sequence[Event]) -> list[Event]:
    """Old lines say `[Rank 3]` of a group without its name: where no group is named, it is the group of all ranks."""
    if any(isinstance(e, OfGroup) and (e.pg_name or e.pg_id) for e in events):
        return list(events)
    return [structs.replace(e, rank=e.group_rank) if e.rank is None and e.group_rank is not None else e for e in events]


def with_likely_ranks(events: Sequence[Event], stated: int) -> list[Event]:
    """The events, without ranks that no world has: a number in a name may be a pid or a date."""
    most = max(stated, LARGEST_WORLD)
    return [structs.replace(e, rank=None) if e.rank is not None and e.rank > most else e for e in events]


def is_launcher(stack: ProcessStack) -> bool:
    """Whether this is the launcher's own process."""
    words = stack.command.split()
    if any(word.rsplit("/", 1)[-1] in _LAUNCHERS or "torch.distributed.run" in word for word in words[:4]):
        return True
    thread = main_thread(stack)
    return thread is not None and any("/elastic/agent/" in frame.file for frame in thread.frames)


def note_only_one_of_host(people: People, stacks: Sequence[ProcessStack]) -> None:
    """A host with one rank of the job and one process that was looked at: they belong together."""
    unknown: dict[str, set[int]] = {}
    for stack in stacks:
        if stack.host and stack.pid is not None and stack.rank is None and not is_launcher(stack):
            unknown.setdefault(short_name(stack.host), set()).add(stack.pid)
    for host, pids in unknown.items():
        ranks = people.ranks_on(host)
        if len(ranks) == len(pids) == 1 and people.by_rank[ranks[0]].pid is None:
            people.note(ranks[0], pid=next(iter(pids)))


def _by_local_ranks(people: People, stacks: Sequence[ProcessStack]) -> None:
    """Stacks of local ranks 0 to n-1, in evidence of one host and of no more ranks: they are the global ranks."""
    told = {s.local_rank: s for s in stacks if s.local_rank is not None and s.pid is not None}
    hosts = people.hosts() | {short_name(s.host) for s in stacks if s.host}
    alone = len(hosts) <= 1 and people.world in (0, len(told)) and all(s.local_rank in told for s in stacks)
    if len(told) < 2 or sorted(told) != list(range(len(told))) or not alone:
        return
    people.world = len(told)
    for number, stack in told.items():
        people.note(number, pid=stack.pid, host=stack.host, local_rank=number)


def _by_host_and_local_rank(people: People, stacks: Sequence[ProcessStack]) -> None:
    """Stacks that name their host and their local rank there, where a list says which rank that is."""
    for stack in stacks:
        if stack.rank is None and stack.pid is not None and stack.host and stack.local_rank is not None:
            here = [people.by_rank[rank] for rank in people.ranks_on(stack.host)]
            ranks = [process.rank for process in here if process.local_rank == stack.local_rank]
            if len(ranks) == 1:
                people.note(ranks[0], pid=stack.pid)


def _by_place_in_group(people: People, stacks: Sequence[ProcessStack]) -> None:
    """Servers call their processes by their place in the tensor-parallel group: where nothing else is parallel, and all
    places are at hand, it is the rank."""
    told = {int(match[1]): s for s in stacks if s.pid is not None and (match := _PLACE.search(s.command))}
    whole = sorted(told) == list(range(len(told))) and len(told) == len(stacks) and len(told) > 1
    if whole and people.world in (0, *range(1, len(told) + 1)) and all(s.rank is None for s in stacks):
        people.world = len(told)
        for number, stack in told.items():
            people.note(number, pid=stack.pid, host=stack.host)


def _last_one_left(people: People, stacks: Sequence[ProcessStack]) -> None:
    """One rank without a process and one process without a rank: they belong together."""
    if not people.world:
        return
    free_ranks = [r for r in range(people.world) if people.by_rank.get(r, Process(r)).pid is None]
    commands = Counter(s.command for s in stacks if people.rank_of(s.pid, s.host) is not None)
    nameless = [s for s in stacks if s.rank is None and s.pid is not None and people.rank_of(s.pid, s.host) is None]
    free = [s for s in nameless if not is_launcher(s) and (not commands or s.command in commands)]
    if len(free_ranks) == 1 and len({s.pid for s in free}) == 1:
        people.note(free_ranks[0], pid=free[0].pid, host=free[0].host)
