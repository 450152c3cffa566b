"""A command that starts ranks, read into the model of a launch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING

from whichrank.records.launches import Count, Launch, Told
from whichrank.records.settings import MEETING, SIZE, UNKNOWN, Clash
from whichrank.source import rank_numbers
from whichrank.source.formats import hostfile
from whichrank.source.places import port_ranges, rendezvous_keys
from whichrank.source.places.own_values import OF_A_TASK, is_own_name, is_random
from whichrank.source.shell import arguments, host_lists
from whichrank.source.shell.step_size import host_file, number, option, written_before
from whichrank.source.shell.words import Field, pieces

if TYPE_CHECKING:
    from whichrank.source.shell.allocation import Count as Size
    from whichrank.source.shell.interpret import Interpreter
    from whichrank.source.shell.state import Environment
    from whichrank.source.shell.words import Lookup, Piece

RDMA_NAMES = ("NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_IB_TIMEOUT", "NCCL_IB_TC", "NCCL_IB_SL", "NCCL_NET_GDR_LEVEL")
_PRODUCTION = r"(?:^|[/_=.-])prod(?:uction)?(?:$|[/_.-])"
_NODES = ("--nnodes", "--num_machines", "--num-machines", "--num_nodes")
_PROCESSES = ("--nproc-per-node", "--nproc_per_node", "--num_gpus")
_TOTAL = ("--num_processes", "--num-processes")
_RANK = ("--node-rank", "--node_rank", "--machine_rank", "--machine-rank")
_ADDRESS = ("--master-addr", "--master_addr", "--main_process_ip", "--main-process-ip")
_ENDPOINT = ("--rdzv-endpoint", "--rdzv_endpoint")
_IDS = ("--rdzv-id", "--rdzv_id")
_CONF = ("--rdzv-conf", "--rdzv_conf")
_MEETING_POINTS = frozenset({"MASTER_ADDR", "NCCL_COMM_ID"})
DEFAULT_PORT = "29500"
_EMPTY: Mapping[str, int] = MappingProxyType({})
_PORT = ("--master-port", "--master_port", "--main_process_port", "--main-process-port")


def check(shell: Interpreter, command: list[Field], env: Environment) -> None:
    """Look at one command that starts the training."""
    if any(re.search(_PRODUCTION, field.text) for field in command[1:]):
        shell.out.production.add(shell.out.label)
    launch = Launch(_program(command), shell.ref(command[0].line), host="" if UNKNOWN in shell.host else shell.host)
    launch.everywhere, launch.background = bool(shell.on_every_host), shell.background > 0
    launch.spread = shell.fans_out
    _given(shell, launch, env)
    if launch.program:
        script = next((i for i, field in enumerate(command) if i and field.text.endswith(".py")), len(command))
        _options(shell, launch, [*_by_variables(launch, command[: script + 1], env), *command[: script + 1]], env)
        _behind_the_script(shell, launch, command[script + 1 :])
    else:
        _task(shell, launch, env)
    arguments.check(shell, launch, command)
    _beside_others(shell, launch, written=option(command, frozenset((*_PORT, *_ENDPOINT))) is not None)
    if launch not in shell.out.launches:
        shell.out.launches.append(launch)


_BY_VARIABLES = {
    f"PET_{name.upper().replace('-', '_')}": f"--{name}"
    for name in ("nnodes", "nproc-per-node", "node-rank", "master-addr", "master-port", "rdzv-backend", "rdzv-endpoint",
                 "rdzv-id")
}  # fmt: skip
"""torchrun takes the default of each option from such a variable (torch/distributed/argparse_util.py)."""


def _by_variables(launch: Launch, command: list[Field], env: Environment) -> list[Field]:
    """Options that torchrun has from its environment alone."""
    found = []
    for name, option_ in _BY_VARIABLES.items() if launch.program == "torchrun" else ():
        variable = env.variables.get(name)
        given = option(command, frozenset({option_, f"--{option_[2:].replace('-', '_')}"}))
        if variable is not None and variable.exported and variable.made and given is None:
            line = variable.made[0].line
            found.append(Field(f"{option_}={variable.value.text}", line, f"{option_}=${name}"))
    return found


def _beside_others(shell: Interpreter, launch: Launch, *, written: bool) -> None:
    """Jobs that one host runs side by side need a port each; a line that starts several jobs must write it."""
    port = launch.port
    alone = not (shell.host or shell.indoors or launch.everywhere or launch.several)
    part = launch.rank is not None and launch.nodes is None  # of a job of which only a run tells the size
    if launch.program not in {"torchrun", "deepspeed"} or not alone or part or port is None:
        return
    if not port.text.isdecimal() or port.text == "0":
        return
    others = [o for job, o in shell.running if job != shell.job and (written or o.ref != launch.ref)]
    first = next((o for o in others if o.port is not None and o.port.text == port.text), None)
    if first is not None and first.port is not None:
        why = f"another job of this file runs at the same time and listens on {port.text} too"
        fix = "Give each job a port of its own."
        clash = Clash(port.name, port.ref, why, fix, (first.port.ref,), cause="port-in-use")
        if all(clash.why != other.why for other in shell.out.clashes):
            shell.clash(clash)
    if launch.background:
        shell.running.append((shell.job, launch))


def _program(command: list[Field]) -> str:
    """torchrun, accelerate or deepspeed; empty for a program that is one rank itself."""
    for field in command[:4]:
        if match := re.search(r"torchrun|torch\.distributed\.(?:run|launch)|accelerate|deepspeed", field.text):
            return "torchrun" if match.group().startswith("torch") else match.group()
    return ""


def _count(shell: Interpreter, size: Size | None) -> Count | None:
    return None if size is None else Count(size.number, shell.ref(size.line), size.said, size.exact)


def _given(shell: Interpreter, launch: Launch, env: Environment) -> None:
    """What the job has."""
    size = shell.allocation
    launch.hosts, launch.gpus = _count(shell, size.nodes), _count(shell, size.devices)
    launch.tasks, launch.started, launch.slots = (
        _count(shell, each) for each in (size.tasks, size.started, size.slots)
    )
    started, tasks = launch.started, launch.tasks
    launch.spread |= (
        started is not None and tasks is not None and launch.hosts is None and started.number > tasks.number
    )
    visible = env.variables.get("CUDA_VISIBLE_DEVICES")
    text = visible.value.text if visible is not None and visible.exported else ""
    if visible is not None and re.fullmatch(r"\d+(?:,\d+)*", text):
        at = visible.made[0].line if visible.made else 1
        launch.visible = Count(len(text.split(",")), shell.ref(at), "CUDA_VISIBLE_DEVICES")
    elif text:
        launch.gpus = None
    launch.cpus = _count(shell, size.cpus)
    threads = _variable(shell, "OMP_NUM_THREADS", env, launch)
    if threads is not None and re.fullmatch(r"[1-9]\d{0,3}", threads.text):
        launch.threads = Count(int(threads.text), threads.ref, threads.name)
    launch.interfaces = tuple(
        told
        for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
        if (told := _variable(shell, name, env, launch)) is not None
    )
    launch.of_nccl = tuple(
        told
        for name in env.variables
        if name.startswith("NCCL_") and (told := _variable(shell, name, env, launch)) is not None
    )
    launch.shared, launch.locked = _count(shell, size.shared), _count(shell, size.locked)
    launch.grace, launch.patience = (
        _count(shell, size.grace),
        _variable(shell, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", env, launch),
    )
    launch.rdma = _rdma(shell, env, launch)
    if launch.everywhere and "NCCL_HOSTID" in env.variables and "NCCL_HOSTID" in shell.own_names - set(shell.hostnames):
        launch.one_name = _variable(shell, "NCCL_HOSTID", env, launch)
    launch.early = tuple(Told(name, text, shell.ref(line)) for name, text, line in shell.early)


def _variable(shell: Interpreter, name: str, env: Environment, launch: Launch) -> Told | None:
    found = env.variables.get(name)
    if found is None:
        return None
    at = shell.ref(found.made[0].line) if found.made else launch.ref
    return Told(name, found.value.text, at)


def _rdma(shell: Interpreter, env: Environment, launch: Launch) -> Told | None:
    """What names an InfiniBand device, unless InfiniBand is switched off."""
    off = env.variables.get("NCCL_IB_DISABLE")
    if off is not None and off.value.text != "0":
        return None
    return next(
        (told for name in RDMA_NAMES if (told := _variable(shell, name, env, launch)) is not None and told.text), None
    )


def _options(shell: Interpreter, launch: Launch, command: list[Field], env: Environment) -> None:
    """What the launcher is told."""
    launch.nodes = _counted(shell, command, _number(shell, command, _NODES))
    nodes = option(command, frozenset(_NODES))
    _mixed_up(shell, command, many=launch.gpus is not None and launch.gpus.number > 1)
    launch.spread = launch.spread or (nodes is not None and UNKNOWN in nodes.text)
    launch.per_host = _number(shell, command, _PROCESSES)
    launch.total = _number(shell, command, _TOTAL)
    launch.rank = _told(shell, command, _RANK)
    launch.address = _told(shell, command, _ADDRESS)
    endpoint = _told(shell, command, _ENDPOINT)
    if endpoint is not None:  # wins over --master-addr
        host = endpoint.text
        if host.count(":") == 1 or "]" in host:
            host, _, port = host.rpartition(":")
            launch.port = endpoint._replace(text=port)
        launch.address = endpoint._replace(text=host)
    launch.port = _told(shell, command, _PORT) or launch.port
    _computed_port(shell, command, env)
    if launch.everywhere and shell.expanded_there:
        _differs_by_task(shell, launch, command)
    alone = next((field for field in command if field.text == "--standalone"), None)
    if alone is not None:  # meets at localhost, whatever else is said
        launch.address, launch.port = Told("--standalone", "localhost", shell.ref(alone.line)), None
    launch.addressed = launch.address is not None
    master = _variable(shell, "MASTER_ADDR", env, launch)
    if launch.address is None or (master is not None and launch.address.text == master.text):
        launch.address = master or launch.address
    for name in (*_ADDRESS, *_ENDPOINT):
        field = option(command, frozenset({name}))
        raw = field.raw.removeprefix(f"{name}=") if field is not None else ""
        if field is not None and (many := rank_numbers.names_many_hosts(raw)):
            shell.clash(rank_numbers.not_one_host(name, many, shell.ref(field.line)))
    _hosts_of_deepspeed(shell, launch, command)
    ids = option(command, frozenset({"--gpu_ids", "--gpu-ids"})) if launch.program == "accelerate" else None
    if ids is not None and re.fullmatch(r"\d+(?:,\d+)*", ids.text):
        launch.visible = Count(len(ids.text.split(",")), shell.ref(ids.line), "--gpu_ids")
    backend = _told(shell, command, ("--rdzv-backend", "--rdzv_backend"))
    elsewhere = backend is None and any(name.startswith("PET_") for name in env.variables)
    if launch.program == "torchrun" and alone is None and not elsewhere:
        for clash in rendezvous_keys.unread(_told(shell, command, _CONF), backend):
            shell.clash(clash)
    told = launch.program in {"torchrun", "accelerate"}  # accelerate hands the backend to torchrun
    launch.numbered = not told or backend is None or backend.text == "static"
    behind = next((i for i, field in enumerate(command) if field.text.endswith(".py")), len(command))
    settled = all(field.text.strip(UNKNOWN) or not field.text for field in command[:behind])
    launch.complete = settled and behind < len(command) and not any(n.startswith("PET_") for n in env.variables)
    if launch.port is None and alone is None and endpoint is None and launch.complete and launch.numbered:
        launch.port = Told("--master-port", DEFAULT_PORT, launch.ref) if launch.program != "accelerate" else None
    launch.itself = _named_after_itself(shell, launch, command) or _own_name_here(shell, launch, command, env)
    launch.drawn = _drawn(shell, command, shell.rounds.drawn if _by_each_host(shell, launch) else {})
    launch.last = _last_host(shell, launch, command)


def _by_each_host(shell: Interpreter, launch: Launch) -> bool:
    """Somebody runs the script on one host after the other, with the number of each."""
    told = launch.rank is not None and UNKNOWN in launch.rank.text and launch.several and launch.numbered
    return told and not (shell.away or shell.rounds.loops or launch.background)


_OF_LOCAL = re.compile(r"SLURM_LOCALID|\w{2,8}_COMM_WORLD_LOCAL_RANK|MPI_LOCALRANKID|LOCAL_RANK|PALS_LOCAL_RANKID")


def _differs_by_task(shell: Interpreter, launch: Launch, command: list[Field]) -> None:
    """What the tasks themselves put in: a number of their own where all must say the same, and the other way round."""
    for name in (*_PORT, *_ENDPOINT, *_ADDRESS, *_IDS, *_RANK):
        field = option(command, frozenset({name}))
        used = re.findall(r"\$[{(]{0,2}(\w{1,60})|(?<=[ (+])(\w{1,60})", field.raw) if field is not None else []
        names = [one or other for one, other in used]
        own = next((each for each in names if OF_A_TASK.fullmatch(each)), "") if name not in _RANK else ""
        local = next((each for each in names if _OF_LOCAL.fullmatch(each)), "") if name in _RANK else ""
        if field is not None and own:
            why = f"${own} is another number in each task, so they look for each other in different places"
            fix = "Give all of them the same."
            shell.clash(Clash(name, shell.ref(field.line), why, fix, (launch.ref,), cause=MEETING))
        elif field is not None and local and launch.several:
            why = f"${local} counts the tasks of one host, so each host takes itself for host 0"
            fix = "Take the number of the host."
            shell.clash(Clash(name, shell.ref(field.line), why, fix, (launch.ref,), cause=SIZE))


def _computed_port(shell: Interpreter, command: list[Field], env: Environment) -> None:
    """A port that an option computes, and that may become a number which is none."""
    for name in (*_PORT, *_ENDPOINT):
        field = option(command, frozenset({name}))
        most = port_ranges.in_shell(field.raw, shell.lookup(env)) if field is not None else 0
        if field is not None and most:
            shell.clash(port_ranges.clash(name, most, shell.ref(field.line)))


_PER_HOST = re.compile(
    r"\w{0,40}(?:GPUS?|PROCS?|NPROC|TASKS|DEVICES|WORKERS|RANKS)_?PER_?(?:NODE|HOST|MACHINE)\w{0,10}|SLURM_GPUS_ON_NODE"
    r"|LOCAL_WORLD_SIZE",
    re.IGNORECASE,
)
_OF_HOSTS = re.compile(
    r"\w{0,40}(?:N|NUM|NR|NUMBER_OF|COUNT_OF|TOTAL)_?(?:NODES|HOSTS|MACHINES)|\w{0,40}(?:NODE|HOST)_COUNT",
    re.IGNORECASE,
)


def _mixed_up(shell: Interpreter, command: list[Field], *, many: bool) -> None:
    """By the names of the variables: what counts processes given as a number of hosts, and the other way round."""
    for names, wrong, what in (
        (_NODES, _PER_HOST, "the processes of one host, and the option takes the number of hosts"),
        (_PROCESSES, _OF_HOSTS, "hosts, and the option takes the number of processes on each"),
        *([(_TOTAL, _OF_HOSTS, "hosts, and the option takes the processes of all of them together")] if many else []),
    ):
        for name in names:
            field = option(command, frozenset({name}))
            raw = field.raw.removeprefix(f"{name}=") if field is not None else ""
            used = re.fullmatch(r"[\"']?\$\{?(\w{1,60})(?::?-[^{}]{0,40})?\}?[\"']?", raw)
            if field is not None and used and wrong.fullmatch(used[1]):
                why = f"{used[1]} counts {what}"
                fix = "Give the number of hosts here." if names is _NODES else "Give the number of processes."
                shell.clash(Clash(name, shell.ref(field.line), why, fix, cause=SIZE))


def _hosts_of_deepspeed(shell: Interpreter, launch: Launch, command: list[Field]) -> None:
    """The hostfile that the script writes: its hosts, and the GPUs of each (slots)."""
    file = option(command, frozenset({"--hostfile", "-H"})) if launch.program == "deepspeed" else None
    if file is not None and (written := written_before(file, shell.files)) is not None:
        for host, one, two in hostfile.twice(written.text):
            refs = (shell.ref(written.line + at - 1) for at in (two, one))
            shell.clash(hostfile.clash(host, *refs, of_deepspeed=True))
    if file is not None and (hosts := host_file(file, shell.files)) is not None:
        launch.hosts = _count(shell, hosts[0])
        chosen = option(command, frozenset({"--include", "-i", "--exclude", "-e", "--num_nodes"}))
        launch.slots = _count(shell, hosts[1]) if chosen is None else None
        slots = hosts[1].number // hosts[0].number if hosts[1] is not None else 0
        if slots and launch.per_host is not None and launch.per_host.number > slots:
            launch.gpus = Count(slots, launch.hosts.ref if launch.hosts else launch.ref, hosts[0].said)


def one_port(shell: Interpreter, branches: list[list[Launch]]) -> None:
    """Hosts that take different branches of one condition start parts of one job: they meet at one port."""
    told = [[port for launch in branch if (port := _meets_at(launch))] for branch in branches]
    for first, second in pairwise(ports for ports in told if ports):
        if {port.text for port in first}.isdisjoint(port.text for port in second):
            ours, theirs = first[0], second[0]
            why = f"the branch depends on the host: some hosts of the job meet at {ours.text}, others at {theirs.text}"
            shell.clash(
                Clash(theirs.name, theirs.ref, why, "Give all hosts the same port.", (ours.ref,), cause=MEETING)
            )


def _meets_at(launch: Launch) -> Told | None:
    port = launch.port
    return port if port is not None and launch.program and launch.several and port.text.isdecimal() else None


def _behind_the_script(shell: Interpreter, launch: Launch, arguments: list[Field]) -> None:
    """Options of torchrun that stand behind the script: the script gets them."""
    for names, known in ((_PROCESSES[:2], launch.per_host), (("--nnodes",), launch.nodes), (_ENDPOINT, launch.address)):
        told = _told(shell, arguments, names) if launch.program == "torchrun" and known is None else None
        if told is not None:
            why = "it stands behind the name of the script, so the script gets it and torchrun does not"
            shell.clash(Clash(told.name, told.ref, why, "Write it in front of the script.", (launch.ref,)))


def _number(shell: Interpreter, command: list[Field], names: tuple[str, ...]) -> Count | None:
    for name in names:
        if (field := option(command, frozenset({name}))) is not None:
            low, _, high = field.text.rpartition(":")  # --nnodes 1:4
            found = _count(shell, number(field._replace(text=high), name))
            return found._replace(exact=False) if found is not None and low else found
    return None


def _counted(shell: Interpreter, command: list[Field], nodes: Count | None) -> Count | None:
    """Where the script counts the lines of a file of hosts, that line is meant."""
    field = option(command, frozenset({nodes.said})) if nodes is not None else None
    used = re.findall(r"\$\{?(\w+)", field.raw) if field is not None else []
    names = [name for name in used if name in shell.counted] or (list(shell.counted) if not used else [])
    if nodes is None or len(names) != 1:  # without a name the outer shell put the number in
        return nodes
    line, file = shell.counted[names[0]]
    rows = host_lists.rows(shell.allocation).get(file)
    if rows is None or rows.number != nodes.number:
        return nodes
    return nodes._replace(ref=shell.ref(line), said=f"{names[0]} ({host_lists.LINES_OF}${file})")


def _told(shell: Interpreter, command: list[Field], names: tuple[str, ...]) -> Told | None:
    for name in names:
        if (field := option(command, frozenset({name}))) is not None:
            return Told(name, field.text, shell.ref(field.line))
    return None


def _named_after_itself(shell: Interpreter, launch: Launch, command: list[Field]) -> tuple[Told, ...]:
    """`$(hostname)` for the meeting point, in text that every host runs."""
    named = {name: Told(name, "", shell.ref(line)) for name, line in shell.hostnames.items()}
    found = [named[name] for name in sorted(_MEETING_POINTS) if name in named]
    if launch.address is not None and launch.address.name != "MASTER_ADDR":
        field = option(command, frozenset({launch.address.name}))
        used = re.findall(r"\$[{(]?(\w+)", field.raw or field.text) if field is not None else []
        found = [told for told in found if told.name != "MASTER_ADDR"]
        if field is not None and shell.expanded_there and is_own_name(field.raw.partition("=")[2] or field.raw):
            found.append(Told(launch.address.name, "", launch.address.ref))
        else:
            found += [named[name] for name in used if name in named]
    return tuple(found)


def _own_name_here(shell: Interpreter, launch: Launch, command: list[Field], env: Environment) -> tuple[Told, ...]:
    """The same in a script that somebody runs on each host, outside of its branches."""
    field = option(command, frozenset((*_ADDRESS, *_ENDPOINT)))
    if field is None or launch.address is None or shell.way or not _by_each_host(shell, launch):
        return ()
    raw = field.raw.partition("=")[2] if field.raw.startswith("--") else field.raw
    used = re.match(r"[\"']?\$\{?(\w+)", raw)
    variable = env.variables.get(used[1]) if used and used[1] in shell.own_names else None
    made = variable.made if variable is not None else ()
    if len(made) == 1 and made[0].sure and not made[0].way:
        return (Told(launch.address.name, "", shell.ref(made[0].line)),)
    direct = re.match(r"[\"']?(?:\$\(|`|\$\{?HOSTNAME\b)", raw) and is_own_name(raw)
    return (launch.address,) if direct else ()


def is_last_host(part: Piece, lookup: Lookup) -> bool:
    """`$(scontrol show hostnames … | tail -n 1)`, or the last element of such a list."""
    if part.kind == "command":
        return host_lists.is_last(part.text)
    value = lookup(part.text) if part.kind == "variable" and part.subscript == "-1" else None
    return value is not None and bool(value.items) and all(host_lists.is_list(item.raw) for item in value.items or ())


def _last_host(shell: Interpreter, launch: Launch, command: list[Field]) -> Told | None:
    """The meeting point, where that is the last host of a list by which the hosts are numbered."""
    numbered = option(command, frozenset(_RANK))
    in_order = numbered is None if not launch.program else numbered is not None
    if launch.address is None or not in_order or (numbered and not host_lists.IN_ORDER.search(numbered.raw)):
        return None
    field = option(command, frozenset((*_ADDRESS, *_ENDPOINT)))
    raw = field.raw if field is not None else f"${launch.address.name}"
    used = [shell.last_hosts[name] for name in re.findall(r"\$\{?(\w+)", raw) if name in shell.last_hosts]
    direct = field is not None and any(is_last_host(part, lambda _name: None) for part in pieces(raw))
    if not used and not direct:
        return None
    return Told(launch.address.name, "", shell.ref(used[0] if used else launch.address.ref.line))


def _drawn(shell: Interpreter, command: list[Field], before: Mapping[str, int] = _EMPTY) -> tuple[Told, ...]:
    """Ports and names of the meeting that every host draws for itself. Before: variables of the script that hold
    such values, with their lines, where each host runs all of it."""
    found = [Told("MASTER_PORT", "", shell.ref(line)) for name, line in shell.randoms.items() if name == "MASTER_PORT"]
    for name in (*_PORT, *_ENDPOINT, *_IDS):
        field = option(command, frozenset({name}))
        raw = (field.raw or field.text) if field is not None else ""
        differs = {**before, **shell.randoms} | (
            shell.hostnames if name in _IDS else {}
        )  # a name has to be the same on all hosts
        used = [differs[each] for each in re.findall(r"\$[{(]?(\w+)", raw) if each in differs]
        there = shell.expanded_there and (is_random(raw) or (name in _IDS and is_own_name(raw)))
        if field is not None and (used or there):
            found.append(Told(name, "", shell.ref(used[0] if used else field.line)))
    return tuple(found[:1])


def _task(shell: Interpreter, launch: Launch, env: Environment) -> None:
    """A program of which the scheduler or MPI starts every rank."""
    launch.per_host, launch.total = launch.tasks, launch.started
    launch.address = _variable(shell, "MASTER_ADDR", env, launch)
    if launch.address is None and "MASTER_ADDR" in env.missing:  # a container drops it, and it would be wrong anyway
        made = env.missing["MASTER_ADDR"][0]
        launch.address = Told("MASTER_ADDR", made[-1].value.text, shell.ref(made[-1].line)) if made else None
    launch.drawn, launch.last = _drawn(shell, []), _last_host(shell, launch, [])
    launch.itself = tuple(
        Told(name, "", shell.ref(line)) for name, line in shell.hostnames.items() if name in _MEETING_POINTS
    )
    if launch.hosts and launch.tasks and "WORLD_SIZE" in shell.numbers:
        raw, line = shell.numbers["WORLD_SIZE"]
        few = rank_numbers.too_few(raw, launch.hosts.number, launch.tasks.number, shell.ref(line))
        if few is not None:
            shell.clash(few)
    world = env.variables.get("WORLD_SIZE")
    if world is not None and world.exported and world.value.fixed and re.fullmatch(r"\d{1,6}", world.value.text):
        launch.world = _variable(shell, "WORLD_SIZE", env, launch)
        launch.rank = _variable(shell, "RANK", env, launch)
        launch.port = _variable(shell, "MASTER_PORT", env, launch)
