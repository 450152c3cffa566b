"""What a program says of the size of its job: `Trainer(devices=8, num_nodes=2)`, `mp.spawn(…, nprocs=8)`."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from whichrank.model.evidence import Ref
from whichrank.records.launches import Count, Launch, Told
from whichrank.source._constants import Constants
from whichrank.source._environ import pairs, sets
from whichrank.source.nodes import last_name
from whichrank.source.shell.embedded import run_command

_PER_HOST = {
    "spawn": "nprocs", "start_processes": "nprocs", "Trainer": "devices", "Fabric": "devices",
    "notebook_launcher": "num_processes",
}  # fmt: skip
# What submitit, Flyte, NeMo-Run, TorchX and the SDKs of clouds call the parts of a job.
_ASKED = {
    "hosts": ("nodes", "num_nodes", "nnodes", "instance_count", "node_count", "slurm_nodes"),
    "ranks": (
        "tasks_per_node", "ntasks_per_node", "slurm_ntasks_per_node", "nproc_per_node", "process_count_per_instance",
        "num_proc_per_node",
    ),
    "gpus": ("gpus_per_node", "slurm_gpus_per_node", "gpu"),
}  # fmt: skip
_ENVIRONMENTS = frozenset({"env", "envs", "environment", "env_vars", "environment_variables"})
_INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")


def launches(
    tree: ast.AST, constants: Constants, names: frozenset[str], ref: Callable[[ast.AST], Ref], lines: list[str]
) -> Iterator[Launch]:
    """Calls that start ranks or ask for a job; a program that is a rank itself where it joins a process group."""
    backend = _backend(tree, constants, ref)
    own: dict[str, tuple[str, Ref]] = {}
    for node in ast.walk(tree):
        own.update({name: (constants.text(value), ref(place)) for name, value, place in sets(node, names, constants)})
    if backend is not None:
        of_nccl = tuple(Told(name, *said) for name, said in own.items() if name.startswith("NCCL_"))
        yield Launch("", backend.ref, backend=backend, of_nccl=of_nccl)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = last_name(node.func)
        if called not in _PER_HOST and (asked := _asked_for(node, constants, ref)) is not None:
            asked.backend = backend
            yield asked
            yield from _commanded(node, asked, constants, lines)
        if called not in _PER_HOST:
            continue
        launch = Launch(called, ref(node), per_host=_count(node, _PER_HOST[called], constants, ref), backend=backend)
        launch.nodes = _count(node, "num_nodes", constants, ref)
        launch.total = _told_world(node, tree, constants, ref) if called in {"spawn", "start_processes"} else None
        visible, address = own.get("CUDA_VISIBLE_DEVICES"), own.get("MASTER_ADDR")
        if visible is not None and re.fullmatch(r"\d+(?:,\d+)*", visible[0]):
            launch.visible = Count(len(visible[0].split(",")), visible[1], "CUDA_VISIBLE_DEVICES")
        if address is not None:
            launch.address = Told("MASTER_ADDR", *address)
        launch.interfaces = tuple(Told(n, *own[n]) for n in _INTERFACES if n in own)
        yield launch


def _told_world(node: ast.Call, tree: ast.AST, constants: Constants, ref: Callable[[ast.AST], Ref]) -> Count | None:
    """`spawn(run, args=(8, …), nprocs=4)` of `def run(rank, world_size, …)`: the number that the ranks are told."""
    target = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "fn"), None)
    given = next((k.value for k in node.keywords if k.arg == "args"), None)
    first = given.elts[0] if isinstance(given, ast.Tuple) and given.elts else None
    known = constants.resolve(first) if first is not None else None
    for each in ast.walk(tree):
        if isinstance(each, ast.FunctionDef) and isinstance(target, ast.Name) and each.name == target.id:
            names = [argument.arg for argument in each.args.args]
            joins = [c for c in ast.walk(each) if isinstance(c, ast.Call) and last_name(c.func) == "init_process_group"]
            sizes = [last_name(k.value) for call in joins for k in call.keywords if k.arg == "world_size"]
            if (
                len(names) > 1
                and ("world" in names[1] or sizes == names[1:2])
                and isinstance(known, ast.Constant)
                and first is not None
            ):
                number = known.value if isinstance(known.value, int) and not isinstance(known.value, bool) else 0
                return Count(number, ref(first), names[1]) if number > 0 else None
    return None


def _backend(tree: ast.AST, constants: Constants, ref: Callable[[ast.AST], Ref]) -> Told | None:
    """What all process groups of the program communicate by, where each call says the same."""
    told = []
    for node in ast.walk(tree):
        called = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
        if not isinstance(node, ast.Call) or called not in {"init_process_group", "new_group", "init_device_mesh"}:
            continue
        first = node.args[0] if node.args and called == "init_process_group" else None
        given = next((k.value for k in node.keywords if k.arg == "backend"), first)
        if given is not None or called == "init_process_group":
            told.append(Told("backend", constants.text(given).lower() if given is not None else "", ref(node)))
    return told[0] if told and len({each.text for each in told}) == 1 and told[0].text else None


def _asked_for(node: ast.Call, constants: Constants, ref: Callable[[ast.AST], Ref]) -> Launch | None:
    """A call that asks a scheduler or a cloud for a job; what it is given may be in calls among its arguments."""
    given = [constants.resolve(k.value) for k in node.keywords]
    calls = [node, *(each for each in given if isinstance(each, ast.Call))]
    found = {
        what: next((c for call in calls for name in names if (c := _count(call, name, constants, ref))), None)
        for what, names in _ASKED.items()
    }
    found["gpus"] = found["gpus"] or _limit(given, constants, ref)
    if (shape := next((k.value for k in node.keywords if k.arg == "j"), None)) is not None:  # TorchX: "2x8"
        match = re.fullmatch(r"([1-9]\d{0,4})x([1-9]\d{0,3})", constants.text(shape))
        found["hosts"] = Count(int(match[1]), ref(shape), "j") if match else None
        found["ranks"] = Count(int(match[2]), ref(shape), "j") if match else None
    environments = [k.value for k in node.keywords if k.arg and k.arg in _ENVIRONMENTS]
    stated = sum(count is not None for count in found.values())
    if stated + bool(environments) < 2 and not (stated and _command(node, constants)):
        return None
    own = {
        name: Told(name, constants.text(value), ref(place))
        for given in environments
        for name, value, place in pairs(constants.resolve(given), constants)
    }
    launch = Launch("", ref(node), hosts=found["hosts"], gpus=found["gpus"], per_host=found["ranks"], everywhere=True)
    launch.interfaces = tuple(own[n] for n in _INTERFACES if n in own)
    launch.address = own.get("MASTER_ADDR")
    return launch


def _limit(given: list[ast.expr], constants: Constants, ref: Callable[[ast.AST], Ref]) -> Count | None:
    """`limits={"nvidia.com/gpu": 4}` of Kubernetes, on its own or in the call that makes resources of it."""
    parts = [
        *given,
        *(constants.resolve(k.value) for each in given if isinstance(each, ast.Call) for k in each.keywords),
    ]
    for part in parts:
        for key, value in zip(part.keys, part.values, strict=True) if isinstance(part, ast.Dict) else ():
            text = constants.text(value)
            if isinstance(key, ast.Constant) and key.value == "nvidia.com/gpu" and re.fullmatch(r"[1-9]\d{0,2}", text):
                return Count(int(text), ref(value), "nvidia.com/gpu")
    return None


def _command(node: ast.Call, constants: Constants) -> list[tuple[str, int]]:
    """The words that a call which describes a container or a role has it run; none where no launcher is among them."""
    words: list[tuple[str, int]] = []
    for name in ("entrypoint", "command", "cmd", "args"):
        given = next((k.value for k in node.keywords if k.arg == name), None)
        known = constants.resolve(given) if given is not None else None
        if known is None or given is None:
            continue
        last = known.elts[-1] if isinstance(known, ast.List) and known.elts else known
        script = constants.joined(constants.resolve(last))
        if script is not None:  # sh -c "…": the words as they stand in the program, each on its line
            words = script
        elif (listed := constants.strings(given)) is not None:
            words += listed
        elif isinstance(known, ast.Constant) and isinstance(known.value, str):
            words.append((known.value, known.lineno))
    return words if any(re.search(r"torchrun|torch\.distributed\.run", text) for text, _ in words) else []


def _commanded(node: ast.Call, asked: Launch, constants: Constants, lines: list[str]) -> Iterator[Launch]:
    """The launch that such a command is, with what the call gives it."""
    words = _command(node, constants)
    if not words:
        return
    found = run_command([(text, text, line) for text, line in words], asked.ref.source, lines, [])
    for launch in found.launches:
        launch.hosts, launch.gpus, launch.everywhere = asked.hosts, asked.gpus, asked.hosts is not None
        yield launch


def _count(node: ast.Call, name: str, constants: Constants, ref: Callable[[ast.AST], Ref]) -> Count | None:
    given = next((k.value for k in node.keywords if k.arg == name), None)
    known = constants.resolve(given) if given is not None else None
    if given is None or not isinstance(known, ast.Constant) or isinstance(known.value, bool):
        return None
    text = str(known.value)
    return Count(int(text), ref(given), name) if re.fullmatch(r"[1-9]\d{0,5}", text) else None
