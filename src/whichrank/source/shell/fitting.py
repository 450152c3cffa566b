"""Whether what a launch line asks for fits the environment that it starts with."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from whichrank.records.settings import UNKNOWN, Clash

if TYPE_CHECKING:
    from whichrank.source.shell.interpret import Interpreter
    from whichrank.source.shell.state import Environment
    from whichrank.source.shell.words import Field

_LOOPBACK = r"localhost|127\.\d+\.\d+\.\d+|::1"
_PRODUCTION = r"(?:^|[/_=.-])prod(?:uction)?(?:$|[/_.-])"
_RUNS_RANKS = r"torchrun|torch\.distributed\.(?:run|launch)|accelerate"


def check(shell: Interpreter, command: list[Field], env: Environment) -> None:
    """Look at one command that starts the training."""
    texts = [field.text for field in command]
    if any(re.search(_PRODUCTION, text) for text in texts[1:]):
        shell.out.production.add(shell.out.label)
    if not any(re.search(_RUNS_RANKS, text) for text in texts[:4]):
        return
    nodes = _number(texts, "--nnodes", "--num_machines", "--num-machines")
    processes = _number(texts, "--nproc-per-node", "--nproc_per_node")
    line = command[0].line
    if nodes > 1:
        _loopback(shell, texts, env, line)
    if processes > 1:
        _devices(shell, processes, env, line)
        tasks, said = shell.tasks
        if tasks > 1 and shell.under_srun:
            why = f"srun starts {tasks} launchers per node and each of them starts {processes} ranks"
            fix = "Start one launcher per node: --ntasks-per-node=1."
            _add(shell, Clash("ntasks-per-node", shell.ref(said), why, fix, (shell.ref(line),)))


def _number(texts: list[str], *options: str) -> int:
    for index, text in enumerate(texts):
        name, _, value = text.partition("=")
        if name in options:
            value = value or (texts[index + 1] if index + 1 < len(texts) else "")
            last = value.rpartition(":")[2]  # --nnodes 1:4
            return int(last[:6]) if last.isdecimal() else 0
    return 0


def _loopback(shell: Interpreter, texts: list[str], env: Environment, line: int) -> None:
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        variable = env.variables.get(name)
        if variable is not None and variable.value.text.removeprefix("=") == "lo":
            at = variable.made[0].line if variable.made else line
            why = "the loopback interface does not reach the other hosts"
            _add(shell, Clash(name, shell.ref(at), why, "Name the interface that does.", (shell.ref(line),)))
    master = env.variables.get("MASTER_ADDR")
    if master is not None and re.fullmatch(_LOOPBACK, master.value.text):
        at = master.made[0].line if master.made else line
        why = "every host waits for itself there: the address of the first host is needed on all of them"
        _add(shell, Clash("MASTER_ADDR", shell.ref(at), why, "Give the address of the first host.", (shell.ref(line),)))
        return
    for index, text in enumerate(texts):
        option, _, value = text.partition("=")
        if option in {"--master-addr", "--master_addr", "--rdzv-endpoint", "--rdzv_endpoint", "--main_process_ip"}:
            value = value or (texts[index + 1] if index + 1 < len(texts) else "")
            if UNKNOWN not in value and re.fullmatch(_LOOPBACK, value.rpartition(":")[0] if ":" in value else value):
                why = "every host waits for itself there: the address of the first host is needed on all of them"
                _add(shell, Clash(option, shell.ref(line), why, "Give the address of the first host."))


def _devices(shell: Interpreter, processes: int, env: Environment, line: int) -> None:
    visible = env.variables.get("CUDA_VISIBLE_DEVICES")
    text = visible.value.text if visible is not None and visible.exported else ""
    if not re.fullmatch(r"\d+(?:,\d+)*", text):
        return
    count = len(text.split(","))
    if count < processes:
        why = f"{processes} processes are started and {count} GPUs are visible: the others have no device"
        fix = f"Start {count} processes, or make more GPUs visible."
        also = tuple(shell.ref(made.line) for made in visible.made) if visible is not None else ()
        _add(shell, Clash("CUDA_VISIBLE_DEVICES", shell.ref(line), why, fix, also))


def _add(shell: Interpreter, clash: Clash) -> None:
    if clash not in shell.out.clashes:
        shell.out.clashes.append(clash)
