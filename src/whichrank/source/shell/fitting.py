"""Whether what a launch line asks for fits its environment, the job's allocation and the other launch lines."""

from __future__ import annotations

import re
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from whichrank.records.settings import UNKNOWN, Clash

if TYPE_CHECKING:
    from whichrank.source.shell.interpret import Interpreter
    from whichrank.source.shell.state import Environment
    from whichrank.source.shell.words import Field

_LOOPBACK = r"localhost|127\.\d+\.\d+\.\d+|\[?::1\]?"
_PRODUCTION = r"(?:^|[/_=.-])prod(?:uction)?(?:$|[/_.-])"
_RUNS_RANKS = r"torchrun|torch\.distributed\.(?:run|launch)|accelerate"
_WAITS_FOR_ITSELF = "every host waits for itself there: the address of the first host is needed on all of them"
_FIRST_HOST = "Give the address of the first host."


class Member(NamedTuple):
    """One host's launch line of a job on several hosts."""

    rank: str
    nodes: int
    address: str
    port: str
    line: int
    host: str
    """That ssh started it on; empty for this one, or where it is not known."""


def check(shell: Interpreter, command: list[Field], env: Environment) -> None:
    """Look at one command that starts the training."""
    texts = [field.text for field in command]
    if any(re.search(_PRODUCTION, text) for text in texts[1:]):
        shell.out.production.add(shell.out.label)
    line = command[0].line
    if not any(re.search(_RUNS_RANKS, text) for text in texts[:4]):
        _rank_by_task(shell, env, line)
        return
    nodes = _number(texts, "--nnodes", "--num_machines", "--num-machines")
    processes = _number(texts, "--nproc-per-node", "--nproc_per_node")
    if nodes > 1:
        _loopback(shell, texts, env, line)
        _remember(shell, texts, nodes, line)
    if shell.on_every_host:
        _hosts(shell, texts, nodes, line)
    if processes > 1:
        _devices(shell, processes, env, line)
        tasks = shell.allocation.tasks
        if tasks is not None and tasks.number > 1 and shell.on_every_host:
            why = f"srun starts {tasks.number} launchers per node and each of them starts {processes} ranks"
            fix = "Start one launcher per node: --ntasks-per-node=1."
            _add(shell, Clash("ntasks-per-node", shell.ref(tasks.line), why, fix, (shell.ref(line),)))


def _option(texts: list[str], *options: str) -> str:
    for index, text in enumerate(texts):
        name, equals, value = text.partition("=")
        if name in options:
            return value if equals else texts[index + 1] if index + 1 < len(texts) else ""
    return ""


def _number(texts: list[str], *options: str) -> int:
    last = _option(texts, *options).rpartition(":")[2]  # --nnodes 1:4
    return int(last[:6]) if last.isdecimal() else 0


def _rank_by_task(shell: Interpreter, env: Environment, line: int) -> None:
    """A program of which the scheduler starts every rank."""
    nodes, tasks = shell.allocation.nodes, shell.allocation.tasks
    if not shell.on_every_host or nodes is None or nodes.number < 2:
        return
    _loopback(shell, [], env, line)
    world = env.variables.get("WORLD_SIZE")
    text = world.value.text if world is not None and world.exported else ""
    if world is None or tasks is None or not re.fullmatch(r"\d{1,6}", text) or not world.value.fixed:
        return
    if int(text) != nodes.number * tasks.number:
        at = world.made[0].line if world.made else line
        why = f"{text} ranks are expected and srun starts {nodes.number} times {tasks.number}"
        _add(shell, Clash("WORLD_SIZE", shell.ref(at), why, "Write WORLD_SIZE=$SLURM_NTASKS.", (shell.ref(line),)))


def _hosts(shell: Interpreter, texts: list[str], nodes: int, line: int) -> None:
    """`--nnodes` and the number of hosts that run the launcher."""
    asked, text = shell.allocation.nodes, _option(texts, "--nnodes")
    if asked is None or not text.isdecimal() or nodes == asked.number:
        return
    why = f"{nodes} hosts are expected and {asked.said} means {asked.number}"
    _add(shell, Clash("--nnodes", shell.ref(line), why, f"Write --nnodes={asked.number}.", (shell.ref(asked.line),)))


def _loopback(shell: Interpreter, texts: list[str], env: Environment, line: int) -> None:
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        variable = env.variables.get(name)
        if variable is not None and variable.value.text.removeprefix("=") == "lo":
            at = variable.made[0].line if variable.made else line
            why = "the loopback interface does not reach the other hosts"
            _add(shell, Clash(name, shell.ref(at), why, "Name the interface that does.", (shell.ref(line),)))
    master = env.variables.get("MASTER_ADDR")
    for option in ("--master-addr", "--master_addr", "--rdzv-endpoint", "--rdzv_endpoint", "--main_process_ip"):
        value = _option(texts, option)
        if not value or (master is not None and value.startswith(master.value.text)):
            continue
        master = None  # the option wins
        host = re.sub(r":\d*$", "", value) if value.count(":") == 1 or "]" in value else value
        if UNKNOWN not in value and re.fullmatch(_LOOPBACK, host):
            _add(shell, Clash(option, shell.ref(line), _WAITS_FOR_ITSELF, _FIRST_HOST))
    if master is not None and re.fullmatch(_LOOPBACK, master.value.text):
        at = master.made[0].line if master.made else line
        _add(shell, Clash("MASTER_ADDR", shell.ref(at), _WAITS_FOR_ITSELF, _FIRST_HOST, (shell.ref(line),)))


def _devices(shell: Interpreter, processes: int, env: Environment, line: int) -> None:
    visible = env.variables.get("CUDA_VISIBLE_DEVICES")
    text = visible.value.text if visible is not None and visible.exported else ""
    if visible is not None and re.fullmatch(r"\d+(?:,\d+)*", text):
        count = len(text.split(","))
        if count < processes:
            why = f"{processes} processes are started and {count} GPUs are visible: the others have no device"
            also = tuple(shell.ref(made.line) for made in visible.made)
            fix = f"Start {count} processes, or make more GPUs visible."
            _add(shell, Clash("CUDA_VISIBLE_DEVICES", shell.ref(line), why, fix, also))
        return
    asked = shell.allocation.devices
    if asked is not None and not text and asked.number < processes:
        why = (
            f"{processes} processes are started per host, and {asked.said} gives it {asked.number} GPUs: "
            "the others have no device"
        )
        fix = f"Start {asked.number} processes, or ask for {processes} GPUs."
        _add(shell, Clash("--nproc-per-node", shell.ref(line), why, fix, (shell.ref(asked.line),)))


def _remember(shell: Interpreter, texts: list[str], nodes: int, line: int) -> None:
    endpoint = _option(texts, "--rdzv-endpoint", "--rdzv_endpoint")
    address, _, port = endpoint.rpartition(":") if ":" in endpoint else (endpoint, "", "")
    address = _option(texts, "--master-addr", "--master_addr", "--main_process_ip") or address
    port = _option(texts, "--master-port", "--master_port", "--main_process_port") or port
    rank = _option(texts, "--node-rank", "--node_rank", "--machine_rank")
    shell.members.append(Member(rank, nodes, address, port, line, "" if UNKNOWN in shell.host else shell.host))


def check_members(shell: Interpreter) -> None:
    """Launch lines of one job, a line for each host, must name one meeting point."""
    lines = list({member.line: member for member in shell.members if member.rank.isdecimal()}.values())
    for first, second in combinations(lines[:16], 2):
        same = first[:4] == second[:4] and UNKNOWN not in first.address + first.port
        if same and first.host != second.host and first.host and second.host:
            why = f"{first.host} and {second.host} are both host {first.rank} of the same job"
            at, also = shell.ref(second.line), (shell.ref(first.line),)
            _add(shell, Clash("--node-rank", at, why, "Number the hosts 0, 1, 2 and so on.", also))
    if len({member.rank for member in lines}) < len(lines):
        return  # several jobs
    for first, second in combinations(lines[:16], 2):
        if first.nodes != second.nodes:
            continue
        for option, ours, theirs in (
            ("--master-port", first.port, second.port),
            ("--master-addr", first.address, second.address),
        ):
            if ours and theirs and UNKNOWN not in ours + theirs and ours != theirs:
                why = f"host {first.rank} meets the others at {ours} and host {second.rank} at {theirs}"
                at, also = shell.ref(second.line), (shell.ref(first.line),)
                _add(shell, Clash(option, at, why, "Give all hosts the same address and port.", also))


def _add(shell: Interpreter, clash: Clash) -> None:
    if clash not in shell.out.clashes:
        shell.out.clashes.append(clash)
