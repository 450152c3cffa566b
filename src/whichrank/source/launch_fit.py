"""Whether what a launch starts fits what it is given, its environment and the other launches of the job."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import combinations

from whichrank.facts.variables.environment import must_match
from whichrank.model.evidence import Ref
from whichrank.model.findings import Severity
from whichrank.records.launches import OF_ITS_OWN, Count, Launch
from whichrank.records.settings import MEETING, SIZE, UNKNOWN, Assignment, Clash, SettingsFile
from whichrank.source.places import per_host, ports

_LOOPBACK = r"localhost|127\.\d+\.\d+\.\d+|0\.0\.0\.0|\[?::1?\]?"
_WAITS_FOR_ITSELF = "every host waits for itself there: the address of the first host is needed on all of them"
_FIRST_HOST = "Give the address of the first host."


def check(file: SettingsFile, text: str) -> None:
    """Add what does not fit to the file's clashes."""
    given = any(_has_memory(launch) for launch in file.launches) and file.kind == "manifest"
    here = _on_one_machine(file.launches)
    found = [clash for launch in file.launches for clash in _one(launch, beside=given, here=id(launch) in here)]
    together = [_members, _too_high, _apart, _same_port, _unread, *([] if _STARTERS.search(text) else [_on_one_host])]
    found += [] if here else _said_hosts(file)
    found += ports.judged(file)
    found += per_host.one_name(file)
    for clash in (*found, *(clash for judge in together for clash in judge(file.launches))):
        if clash not in file.clashes:
            file.clashes.append(clash)


def _has_memory(launch: Launch) -> bool:
    """Somebody thought of its /dev/shm."""
    return launch.shared is not None and launch.shared.exact and launch.shared.number >= _SHARED_LIMIT


def _one(launch: Launch, *, beside: bool, here: bool) -> Iterator[Clash]:
    if (launch.several or (launch.spread and launch.everywhere)) and not here:
        yield from _addresses(launch)
    if launch.several:
        yield from _left_out(launch)
    if (launch.several or launch.spread) and launch.everywhere:
        yield from per_host.values(launch)
    else:
        yield from per_host.named_apart(launch)
    if launch.everywhere and (launch.several or _many(launch.started) or _many(launch.tasks)):
        yield from per_host.early(launch)
    yield from _hosts(launch)
    sized = [*_devices(launch), *_copies(launch)]
    yield from sized or _threads(launch)
    yield from _total(launch)
    yield from _trainer(launch)
    yield from _memory(launch, beside=beside)
    yield from _stopping(launch)


def _also(*counts: Count | None) -> tuple[Ref, ...]:
    return tuple(count.ref for count in counts if count is not None)


def _hosts(launch: Launch) -> Iterator[Clash]:
    """The hosts that the launcher waits for, and those that there are."""
    nodes, hosts = launch.nodes or launch.own_nodes, launch.hosts
    if nodes is None or hosts is None or not nodes.exact:
        return
    if nodes.number > hosts.number or (launch.everywhere and hosts.exact and nodes.number < hosts.number):
        why = f"{nodes.number} hosts are expected and {hosts.said} means {hosts.number}"
        fix = f"Write {nodes.said}={hosts.number}."
        if "lines of" in nodes.said:
            fix = "Count each host once: sort -u … | wc -l. The file has a line for each rank or slot of a host."
        elif "parallelism" in hosts.said:
            fix = f"Write parallelism: {nodes.number}, so that all pods run together."
        yield Clash(nodes.said, nodes.ref, why, fix, (launch.ref, hosts.ref), cause=SIZE)


def _too_high(launches: list[Launch]) -> Iterator[Clash]:
    """Hosts and machines are numbered from 0; of several lines their number is judged instead."""
    lines = [launch for launch in launches if launch.rank is not None and launch.rank.text.isdecimal()]
    rank, nodes = (lines[0].rank, lines[0].nodes) if len(lines) == 1 and lines[0].numbered else (None, None)
    if rank is None or nodes is None or not nodes.exact or len(rank.text) > 5:
        return
    if int(rank.text) >= nodes.number:
        why = f"hosts are numbered from 0, so that {nodes.number} of them end at {nodes.number - 1}"
        fix = f"Write a number from 0 to {nodes.number - 1}."
        yield Clash(rank.name, rank.ref, why, fix, (nodes.ref,), cause=SIZE)


def _unread(launches: list[Launch]) -> Iterator[Clash]:
    """Settings of NCCL for programs that all communicate by gloo."""
    for launch in launches:
        if launch.backend is None or launch.backend.text != "gloo":
            return
    for launch in launches:
        for told in launch.of_nccl:
            there = f"GLOO{told.name.removeprefix('NCCL')}" if told.name == "NCCL_SOCKET_IFNAME" else ""
            why = "every program of this file communicates by gloo, which does not read it"
            fix = f"Set {there}." if there else "Drop it."
            yield Clash(told.name, told.ref, why, fix, (launch.backend.ref,) if launch.backend else ())


_STARTERS = re.compile(
    r"\b(?:srun|ssh|pdsh|dsh|clush|blaunch|mpi(?:run|exec)|pbsdsh|jsrun|aprun|parallel|flux|xargs)\b"
)


def _on_one_host(launches: list[Launch]) -> Iterator[Clash]:
    """A batch script runs on the first host of its job: what has to run on all of them is started by srun or ssh."""
    for launch in launches:
        nodes, hosts = launch.nodes, launch.hosts
        if launch.everywhere or launch.host or launch.background or launch.program != "torchrun":
            return  # the others are started in some way
        if nodes is not None and hosts is not None and nodes.exact and hosts.number > 1 and nodes.number > 1:
            why = f"the script runs on the first of {hosts.number} hosts only, and torchrun waits for {nodes.number}"
            fix = "Start it on each host: srun torchrun …."
            yield Clash(nodes.said, nodes.ref, why, fix, (hosts.ref,), cause="missing-rank-at-init")


def _devices(launch: Launch) -> Iterator[Clash]:
    """Processes on each host, and its GPUs."""
    ranks, visible, gpus = launch.ranks_per_host, launch.visible, launch.gpus
    if ranks is None or ranks.number < 2:
        return
    if visible is not None:
        if launch.program == "accelerate" and launch.several and visible.number > ranks.number:
            yield _idle(ranks, visible)
        if visible.number < ranks.number:
            why = (
                f"{ranks.number} processes are started on each host and {visible.number} GPUs are visible: "
                "the others have no device"
            )
            fix = f"Start {visible.number} processes, or make more GPUs visible."
            name = f"{visible.said} and {ranks.said}"
            yield Clash(name, launch.ref, why, fix, _also(visible, ranks), cause="device-ordinal")
        return
    if gpus is None or ranks.number == gpus.number:
        return
    if ranks.number > gpus.number:
        why = (
            f"{ranks.number} processes are started per host, and {gpus.said} gives it {gpus.number} GPUs: "
            "the others have no device"
        )
        fix = f"Start {gpus.number} processes, or ask for {ranks.number} GPUs."
        yield Clash(ranks.said, ranks.ref, why, fix, _also(gpus), cause="device-ordinal")
    elif launch.program:
        yield _idle(ranks, gpus)


def _idle(ranks: Count, gpus: Count) -> Clash:
    why = (
        f"{ranks.number} processes are started per host, and {gpus.said} gives it {gpus.number} GPUs: the rest is idle"
    )
    fix = f"Start {gpus.number} processes per host."
    if "processes" in ranks.said:
        fix += f" {ranks.said.lstrip('-')} counts those of all machines together."
    return Clash(ranks.said, ranks.ref, why, fix, _also(gpus))


def _copies(launch: Launch) -> Iterator[Clash]:
    """A launcher that is itself started once for each rank."""
    tasks, ranks, started, hosts = launch.tasks, launch.ranks_per_host, launch.started, launch.hosts
    if tasks is None and started is not None and hosts is not None:
        tasks = started._replace(number=started.number // hosts.number)
    if not launch.program or not launch.everywhere or tasks is None or ranks is None:
        return
    if tasks.number > 1 and ranks.number > 1:
        why = f"{tasks.number} launchers are started per node and each of them starts {ranks.number} ranks"
        name = tasks.said.lstrip("-")
        yield Clash(name, tasks.ref, why, "Start one launcher per node: --ntasks-per-node=1.", (launch.ref,))


def _threads(launch: Launch) -> Iterator[Clash]:
    """OMP_NUM_THREADS of all processes of a task, and the CPUs that the task has."""
    threads, cpus = launch.threads, launch.cpus
    processes = launch.ranks_per_host.number if launch.program and launch.ranks_per_host is not None else 1
    if threads is None or cpus is None or threads.number * processes <= cpus.number:
        return
    why = f"{processes} processes with {threads.number} threads each share the {cpus.number} CPUs of {cpus.said}"
    fix = f"Write OMP_NUM_THREADS={max(1, cpus.number // processes)}, or ask for more CPUs."
    yield Clash("OMP_NUM_THREADS", threads.ref, why, fix, _also(cpus))


# NVIDIA's guides ask for --shm-size=1g (or --ipc=host) and --ulimit memlock=-1; what is far below can't do.
_SHARED_LIMIT, _LOCKED_LIMIT = 512 << 20, 256 << 20


def _memory(launch: Launch, *, beside: bool) -> Iterator[Clash]:
    """Shared memory for several processes on a host, and locked memory for RDMA.

    The default of containers may do without data loaders; what runs beside and has more shows that it does not.
    """
    shared, locked, rdma = launch.shared, launch.locked, launch.rdma
    ranks = launch.ranks_per_host or launch.visible or launch.gpus
    enough = (
        shared is None or shared.number >= _SHARED_LIMIT or (not shared.exact and launch.loaders is None and not beside)
    )
    if shared is not None and not enough and ranks is not None and ranks.number > 1:
        why = (
            f"{_bytes(shared.number)} of /dev/shm are too little for {ranks.number} processes: NCCL's shared-memory "
            "transport and the workers of data loaders fail with 'No space left on device' or a bus error"
        )
        fix = "Give 1 GiB or more, or use the host's: --ipc=host."
        yield Clash(shared.said, shared.ref, why, fix, _also(ranks), cause="shm-too-small")
    if locked is not None and rdma is not None and locked.number < _LOCKED_LIMIT:
        why = f"{_bytes(locked.number)} of locked memory are too little to register the buffers of RDMA ({rdma.name})"
        fix = "Set it to unlimited (infinity, -1)."
        severity: Severity = "warning" if locked.exact else "info"
        yield Clash(locked.said, locked.ref, why, fix, (rdma.ref,), severity, "memlock-ulimit")


def _stopping(launch: Launch) -> Iterator[Clash]:
    """Workers that are left time to stop, and what kills them before."""
    grace, patience = launch.grace, launch.patience
    if grace is None or patience is None or not patience.text.isdecimal() or int(patience.text[:9]) <= grace.number:
        return
    why = (
        f"torchrun leaves its workers {patience.text} s to stop ({patience.name}), and {grace.said} kills all of them "
        f"after {grace.number} s"
    )
    fix = f"Raise the second above {patience.text} s, or lower the first."
    yield Clash(grace.said, grace.ref if grace.exact else patience.ref, why, fix, (patience.ref, grace.ref))


def _bytes(number: int) -> str:
    return f"{number >> 20} MiB" if number >= 1 << 20 else f"{number >> 10} KiB"


def _trainer(launch: Launch) -> Iterator[Clash]:
    """Under srun Lightning starts no processes: it refuses devices that are not the tasks of a node
    (SLURMEnvironment.validate_settings)."""
    tasks, devices = launch.tasks, launch.devices
    if tasks is None or devices is None or not launch.everywhere or "tasks-per-node" not in tasks.said:
        return
    if tasks.number != devices.number:
        told = f"{devices.said.lstrip('-')} is {devices.number}"
        why = f"it is {tasks.number} and {told}, which Lightning refuses under srun: each task is one rank"
        fix = f"Write --ntasks-per-node={devices.number}."
        yield Clash(tasks.said, tasks.ref, why, fix, _also(devices))


def _total(launch: Launch) -> Iterator[Clash]:
    """Ranks in all, and what hosts and places make."""
    hosts, tasks, total, slots = launch.hosts, launch.tasks, launch.total, launch.slots
    if launch.program == "accelerate" and total is not None and launch.nodes is not None:
        if total.number % launch.nodes.number:
            why = f"{total.number} processes in all can't be shared evenly by {launch.nodes.number} machines"
            fix = "num_processes counts the processes of all machines together."
            yield Clash(total.said, total.ref, why, fix, _also(launch.nodes))
        return
    if launch.program in {"spawn", "start_processes"} and total is not None and launch.per_host is not None:
        if total.number != launch.per_host.number and not launch.several:
            why = f"every rank waits for {total.number} ranks, and {launch.per_host.number} are started"
            yield Clash(total.said, total.ref, why, "Give both the same number.", _also(launch.per_host), cause=SIZE)
        return
    started = launch.started
    if started is not None and slots is not None and not launch.program and not _fits(started, slots):
        why = f"{started.number} ranks are started, and {slots.said} has places for {slots.number}"
        yield Clash(started.said, started.ref, why, f"Start {slots.number} ranks.", _also(slots))
    elif started and hosts and tasks and started.number > hosts.number * tasks.number:
        why = f"{started.number} ranks are started, and {hosts.number} hosts with {tasks.number} each make fewer"
        fix = f"Start {hosts.number * tasks.number} ranks, or more on each host."
        yield Clash(started.said, started.ref, why, fix, _also(hosts, tasks))
    yield from _world(launch)


def _fits(started: Count, slots: Count) -> bool:
    return started.number == slots.number or (not slots.exact and started.number < slots.number)


def _world(launch: Launch) -> Iterator[Clash]:
    world, hosts, tasks = launch.world, launch.hosts, launch.tasks
    if world is None or not launch.everywhere or hosts is None or tasks is None or hosts.number < 2:
        return
    if int(world.text) != hosts.number * tasks.number:
        why = f"{world.text} ranks are expected and srun starts {hosts.number} times {tasks.number}"
        yield Clash("WORLD_SIZE", world.ref, why, "Write WORLD_SIZE=$SLURM_NTASKS.", (launch.ref,), cause=SIZE)


def _addresses(launch: Launch) -> Iterator[Clash]:
    """Addresses that can't reach another host."""
    for told in launch.interfaces:
        if told.text.removeprefix("=") == "lo":
            why = "the loopback interface does not reach the other hosts"
            fix = "Name the interface that does."
            yield Clash(told.name, told.ref, why, fix, (launch.ref,), cause="wrong-interface")
    address = launch.address
    counts = bool(launch.program) or launch.everywhere
    if counts and address is not None and re.fullmatch(_LOOPBACK, address.text):
        yield Clash(address.name, address.ref, _WAITS_FOR_ITSELF, _FIRST_HOST, (launch.ref,), cause=MEETING)


def _numbered(launches: list[Launch]) -> list[Launch]:
    """Lines that each start one member of a job, with its number."""
    numbered = [launch for launch in launches if launch.rank is not None and launch.rank.text.isdecimal()]
    return [launch for launch in numbered if launch.members > 1 and not launch.everywhere]


def _on_one_machine(launches: list[Launch]) -> set[int]:
    """Lines that start all members of a job on this machine and in one network: the loopback address is right."""
    members = [line for line in _numbered(launches) if not line.host or line.network]
    groups: dict[tuple[str, int], list[Launch]] = {}
    for line in members:
        if not line.network.startswith(OF_ITS_OWN):
            groups.setdefault((line.network, line.members), []).append(line)
    return {
        id(line)
        for (_, size), lines in groups.items()
        if len({line.rank.text for line in lines if line.rank is not None}) == size
        for line in lines
    }


_HOST_COUNTS = ("NNODES", "PET_NNODES", "NUM_NODES", "N_NODES", "NUM_MACHINES")


def _said_hosts(file: SettingsFile) -> Iterator[Clash]:
    """The loopback address beside a number of hosts in one environment; where launches tell, they do."""
    scopes: dict[str, dict[str, Assignment]] = {}
    for each in file.assignments:
        if each.sure and each.value is not None and each.how not in {"local", "build"}:
            scopes.setdefault(each.scope, {})[each.name] = each
    for scope in scopes.values():
        address, count = scope.get("MASTER_ADDR"), next((scope[n] for n in _HOST_COUNTS if n in scope), None)
        first = any(n in scope and scope[n].value == "0" for n in ("NODE_RANK", "RANK"))  # the store is there
        if first or address is None or count is None or not re.fullmatch(r"[1-9]\d{0,4}", count.value or ""):
            continue
        if count.value != "1" and re.fullmatch(_LOOPBACK, address.value or ""):
            yield Clash(address.name, address.ref, _WAITS_FOR_ITSELF, _FIRST_HOST, (count.ref,), cause=MEETING)


def _apart(launches: list[Launch]) -> Iterator[Clash]:
    """Ranks that the file starts one by one in containers with a network each."""
    lines = [line for line in _numbered(launches) if line.network.startswith(OF_ITS_OWN) and not line.several][:64]
    for line in lines:
        address = line.address
        others = [o for o in lines if o.members == line.members and o.network != line.network]
        if others and address is not None and re.fullmatch(_LOOPBACK, address.text):
            why = "each container has a loopback address of its own, so that each of them waits for itself"
            fix = "Give the name of the service that has rank 0."
            yield Clash(address.name, address.ref, why, fix, (line.ref,), cause=MEETING)


def _left_out(launch: Launch) -> Iterator[Clash]:
    """Options without which torchrun on several hosts can't start; mentioned only, as a wrapper may add them."""
    nodes = launch.nodes
    if launch.program != "torchrun" or not launch.complete or nodes is None or nodes.number < 2:
        return
    if not launch.addressed:
        why = "no address is given, and torchrun takes 127.0.0.1 then (it does not read MASTER_ADDR): hosts never meet"
        fix = "Add --master-addr, or --rdzv-backend=c10d with --rdzv-endpoint."
        yield Clash(nodes.said, nodes.ref, why, fix, severity="info")
    elif launch.everywhere and launch.rank is None and launch.numbered and not launch.host:
        why = "--node-rank is missing: without it, and without --rdzv-backend=c10d, each host takes itself for host 0"
        yield Clash(nodes.said, nodes.ref, why, "Add --rdzv-backend=c10d, or --node-rank.", severity="info")


def _many(count: Count | None) -> bool:
    return count is not None and count.number > 1


def _members(launches: list[Launch]) -> Iterator[Clash]:
    """Launch lines of one job, a line for each host, must name one meeting point."""
    lines = [launch for launch in launches if launch.rank is not None and launch.rank.text.isdecimal()]
    lines = [launch for launch in lines if launch.members > 1]
    lines = [launch for launch in lines if launch.host or not launch.everywhere]
    lines = list({(launch.host, launch.ref.locator): launch for launch in lines}.values())[:16]
    ranks = [launch.rank.text for launch in lines if launch.rank is not None]
    for first, second in combinations(lines, 2):
        if first.rank is None or second.rank is None or not _same_job(first, second):
            continue
        apart = first.host != second.host and first.host and second.host and first.numbered
        if apart and first.rank.text == second.rank.text:
            why = f"{first.host} and {second.host} are both host {first.rank.text} of the same job"
            fix = "Number the hosts 0, 1, 2 and so on."
            yield Clash(second.rank.name, second.rank.ref, why, fix, (first.ref,), cause=SIZE)
    if len(set(ranks)) < len(ranks):
        return  # several jobs
    yield from _how_many(lines)
    for first, second in combinations(lines, 2):
        if first.members == second.members:
            yield from _meeting(first, second)
    yield from _shared(lines)


def _shared(lines: list[Launch]) -> Iterator[Clash]:
    """Settings that all members of a job must share; containers of a manifest are compared by their variables."""
    if len(lines) < 2 or any(line.network or not _same_job(lines[0], line) for line in lines):
        return
    settings = [{told.name: told for told in line.of_nccl} for line in lines]
    for name in sorted({name for each in settings for name in each if must_match(name)}):
        texts = Counter(each[name].text if name in each else "" for each in settings)
        if len(texts) < 2 or any(UNKNOWN in text for text in texts):
            continue
        told = [each[name] for each in settings if name in each]
        rare = min(told, key=lambda each: texts[each.text])
        why = "hosts of one job get different values of what all ranks must share"
        also = tuple(dict.fromkeys(each.ref for each in told if each.ref != rare.ref))[:4]
        yield Clash(name, rare.ref, why, "Give all hosts the same value.", also)


def _same_port(launches: list[Launch]) -> Iterator[Clash]:
    """Containers that share a network need a port each."""
    here = [launch for launch in launches if launch.program in {"torchrun", "deepspeed"} and launch.port is not None]
    here = [launch for launch in here if not launch.everywhere and not launch.several][:16]
    for first, second in combinations(here, 2):
        apart = not first.network or first.network != second.network
        if first.port is None or second.port is None or apart or first.ref == second.ref:
            continue
        if first.port.text == second.port.text and first.port.text.isdecimal() and first.port.text != "0":
            why = f"another job of this file runs at the same time and listens on {first.port.text} too"
            fix = "Give each job a port of its own."
            yield Clash(second.port.name, second.port.ref, why, fix, (first.port.ref,), cause="port-in-use")
            return


def _how_many(lines: list[Launch]) -> Iterator[Clash]:
    """The members that each line waits for, where the file starts all of them, each on a host that it names."""
    if not 1 < len(lines) < 16 or not all(line.host and line.members == lines[0].members for line in lines):
        return
    first = lines[0]
    told = first.nodes or (first.world and Count(int(first.world.text), first.world.ref, first.world.name))
    if told is not None and told.exact and told.number != len(lines):
        why = f"{told.number} members are expected and the file starts {len(lines)}"
        fix = f"Write {len(lines)}, or start {told.number}."
        yield Clash(told.said, told.ref, why, fix, (lines[1].ref,), cause=SIZE)


def _meeting(first: Launch, second: Launch) -> Iterator[Clash]:
    """Address and port of two members of one job."""
    for ours, theirs in ((first.port, second.port), (first.address, second.address)):
        if ours is None or theirs is None or first.rank is None or second.rank is None:
            continue
        if ours.text and theirs.text and UNKNOWN not in ours.text + theirs.text and ours.text != theirs.text:
            why = f"host {first.rank.text} meets the others at {ours.text} and host {second.rank.text} at {theirs.text}"
            fix = "Give all hosts the same address and port."
            yield Clash(theirs.name, theirs.ref, why, fix, (ours.ref,), cause=MEETING)


def _both(first: Launch, second: Launch) -> tuple[str, str]:
    return (first.address.text if first.address else "", second.address.text if second.address else "")


def _same_job(first: Launch, second: Launch) -> bool:
    ours, theirs = _both(first, second)
    ports = {launch.port.text if launch.port is not None else "" for launch in (first, second)}
    return ours == theirs and UNKNOWN not in ours and len(ports) == 1 and first.members == second.members
