"""What variables of a script hold that matters later: numbers of ranks and hosts, names of hosts, random numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from whichrank.source import rank_numbers
from whichrank.source.places import own_values, port_ranges
from whichrank.source.shell import fitting, host_lists
from whichrank.source.shell.state import Early, Environment, Variable
from whichrank.source.shell.words import Value, pieces

if TYPE_CHECKING:
    from whichrank.source.shell.interpret import Interpreter


_NODES = ("SLURM_NNODES", "SLURM_JOB_NUM_NODES")
_TASKS = ("SLURM_NTASKS", "SLURM_NPROCS")
_EACH = ("SLURM_NTASKS_PER_NODE",)
OF_A_STEP = frozenset((*_NODES, *_TASKS, *_EACH))
"""Variables that srun sets anew for what it starts."""


def count_hosts(shell: Interpreter, env: Environment) -> None:
    """Numbers that the scheduler leaves to its script: variables of Slurm, lines of files of hosts."""
    size = shell.allocation
    for file, count in host_lists.rows(size).items():
        env.variables[host_lists.LINES_OF + file] = Variable(Value(str(count.number)), True)
    tasks = size.started
    if tasks is None and size.tasks is not None and size.nodes is not None:
        tasks = size.tasks.times(size.nodes.number)
    for names, number in ((_NODES, size.nodes), (_TASKS, tasks), (_EACH, size.tasks)):
        if number is not None and shell.by_slurm:
            there = Variable(Value(str(number.number), fixed=False), True)
            env.variables.update({name: there for name in names if name not in env.variables})


def take(shell: Interpreter, name: str, raw: str, line: int, env: Environment) -> None:
    """Remember what the script assigns, as it is written."""
    _differs(shell, name, raw, line)
    _hosts(shell, name, raw, line, env)
    if port_ranges.NAMED.fullmatch(name) and (most := port_ranges.in_shell(raw, shell.lookup(env))):
        shell.clash(port_ranges.clash(name, most, shell.ref(line)))
    size = shell.allocation.nodes
    local = name in {"LOCAL_RANK", "CUDA_VISIBLE_DEVICES"} and (size is None or size.number > 1)
    if local and (found := rank_numbers.not_local(name, raw, shell.ref(line))) is not None:
        shell.clash(found)
    if name in {"RANK", "LOCAL_RANK", "WORLD_SIZE"}:  # one counts over all hosts, the other on one
        shell.numbers[name] = raw, line
        if (found := rank_numbers.in_script(shell.numbers, shell.ref)) is not None:
            shell.clash(found)


def _differs(shell: Interpreter, name: str, raw: str, line: int) -> None:
    """A value that is another one in each task or on each host."""
    copied, before = _same(raw) in shell.hostnames, dict(shell.per_task)
    shell.per_task.pop(name, None)
    shell.hostnames.pop(name, None)
    shell.randoms.pop(name, None)
    shell.own_names.discard(name)
    if own_values.is_own_name(raw):
        shell.own_names.add(name)
    early = early_in(raw, line, before) if not shell.on_every_host else ()
    if early:
        shell.per_task[name] = early
    elif shell.away and (own_values.is_own_name(raw) or copied):
        shell.hostnames[name] = line
    elif shell.away and own_values.is_random(raw):
        shell.randoms[name] = line


_REFERENCE = re.compile(r"(\\?)(?:(--[\w-]{1,40})[= ]\s?[\"']?)?\$\{?(\w{1,60})")


def early_in(
    raw: str, line: int, known: Mapping[str, tuple[Early, ...]], *, literal: bool = False
) -> tuple[Early, ...]:
    """Variables of tasks that the shell which reads this text puts in; known: variables that hold such texts."""
    found: list[Early] = []
    if "$" not in raw or literal or raw.startswith("'"):
        return ()
    for match in _REFERENCE.finditer(raw):
        escaped, option, name = match.groups()
        if escaped or raw[match.end() - len(name) - 1 : match.end() - len(name)] not in {"$", "{"}:
            continue
        at = line + raw.count("\n", 0, match.start())
        if own_values.OF_A_TASK.fullmatch(name):
            found.append(Early(option or f"${name}", f"${name}", at))
        else:
            whole = [each._replace(name=option, line=at) if option else each for each in known.get(name, ())]
            found += whole
    return tuple(found[:8])


def _same(raw: str) -> str:
    """The variable that another one is a copy of."""
    match = re.fullmatch(r"\"?\$\{?(\w+)\}?\"?", raw)
    return match[1] if match else ""


def _hosts(shell: Interpreter, name: str, raw: str, line: int, env: Environment) -> None:
    """A variable that counts the hosts of the job, or holds the last of them."""
    shell.counted.pop(name, None)
    shell.last_hosts.pop(name, None)
    for part in pieces(raw):
        if part.kind == "command" and (file := host_lists.counted(part.text)):
            shell.counted[name] = line, file
        elif fitting.is_last_host(part, shell.lookup(env)):
            shell.last_hosts[name] = line
