"""What the arguments of the training program itself say of the launch: its backend, its hosts, its batch."""

from __future__ import annotations

import json
import re
from itertools import zip_longest
from typing import TYPE_CHECKING

from whichrank.model.evidence import Ref
from whichrank.records.launches import Count, Launch, Told
from whichrank.records.settings import UNKNOWN, Clash
from whichrank.source.formats.trainer_config import BATCH, MICRO, STEPS
from whichrank.source.shell.step_size import written_before

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whichrank.source.formats.trainer_config import Problem
    from whichrank.source.shell.interpret import Interpreter
    from whichrank.source.shell.state import Written
    from whichrank.source.shell.words import Field

_BACKEND = re.compile(r"--(?:[\w-]*[-_])?backend")
_NODES = re.compile(r"(?:--)?(?:(?<![\w.])[\w.]{0,60}\b)?trainer\.num_nodes|--(?:num[-_]nodes|nnodes)")
_DEVICES = re.compile(
    r"(?:--)?(?:(?<![\w.])[\w.]{0,60}\b)?trainer\.devices|--(?:devices|gpus|num[-_]gpus|gpus[-_]per[-_]node)"
)
_OF_TRAINER = re.compile(r"(?:--)?(?:(?<![\w.])[\w.]{0,60}\b)?trainer\.devices")
_WORKERS = re.compile(r"--num[-_]workers")
_LOADERS = re.compile(
    r"(?:--)?(?:[\w-]{1,40}\.){0,4}(?:data[-_]?(?:loader|loading)?[-_])?(?:num[-_]?)?(?:data[-_]?)?(?:loader[-_]?)?(?:num[-_]?)?workers"
    r"(?:[-_]per[-_](?:gpu|rank|device))?"
)
_TIMEOUT = re.compile(r"--ddp[-_]timeout")  # of transformers.TrainingArguments, in seconds: 1800 by default
_LONG_S = 300_000
_CONFIG = re.compile(r"--(?:deepspeed|ds)(?:[-_]config(?:[-_]file)?)?")
_MODEL_PARALLEL = re.compile(
    r"(?:tensor|pipeline|model|sequence|context|expert|autotp)[\w-]{0,40}(?:parallel|size)|--(?:tp|pp|sp)\b"
)


def check(shell: Interpreter, launch: Launch, command: list[Field]) -> None:
    """Add to the launch what the words behind the script say."""
    given = list(_options(command[_script(command) + 1 :]))
    for name, value in given:
        if _BACKEND.fullmatch(name):
            launch.backend = Told(name, value.text, shell.ref(value.line))
        elif _TIMEOUT.fullmatch(name) and re.fullmatch(r"\d{6,12}", value.text) and int(value.text) >= _LONG_S:
            why = f"the unit is seconds: these are {int(value.text) // 3600} hours"
            fix = f"Write {int(value.text) // 1000}, if milliseconds were meant."
            shell.clash(Clash(name, shell.ref(value.line), why, fix))
    launch.loaders = _number(shell, given, _LOADERS)
    if not launch.program:
        devices, nodes = _trainer(shell, command)
        launch.own_nodes, launch.devices = (
            _hosts(shell, given) or nodes,
            _number(shell, given, _OF_TRAINER) or devices,
        )
    for name, value in given:
        if _CONFIG.fullmatch(name) and not any(_MODEL_PARALLEL.search(field.text) for field in command):
            _batch(shell, launch, value)


def _trainer(shell: Interpreter, command: list[Field]) -> tuple[Count | None, Count | None]:
    """Devices and hosts of Lightning's trainer, by the program that is started, or the configuration that it gets."""
    for field in command[1:]:
        name = field.text.partition("=")[2] or field.text
        if not name.endswith((".py", ".yaml", ".yml")):
            continue
        written, beside = written_before(field, shell.files), None
        if written is None and shell.neighbour is not None and UNKNOWN not in name:
            beside = shell.neighbour(name)
        if written is None and beside is None:
            continue
        text, label = (written.text, shell.label) if written is not None else (beside or ("", ""))[::-1]
        first = written.line if written is not None else 1
        found = _in_program(text, label, first) if name.endswith(".py") else _in_configuration(text, label, first)
        if any(found):
            return found
    return None, None


def _in_program(text: str, label: str, line: int) -> tuple[Count | None, Count | None]:
    """`Trainer(devices=8, num_nodes=2)`, where the program has one trainer."""
    from whichrank.source import program

    trainers = [each for each in program.read(text, label, line).launches if each.program == "Trainer"]
    return (trainers[0].per_host, trainers[0].nodes) if len(trainers) == 1 else (None, None)


def _in_configuration(text: str, label: str, line: int) -> tuple[Count | None, Count | None]:
    """`trainer: {devices: 8, num_nodes: 2}` of LightningCLI and Hydra."""
    from whichrank.source.formats import yaml_tree

    documents, _ = yaml_tree.parse(text)
    part = documents[0].get("trainer") if documents and documents[0].kind == "map" else None
    found: list[Count | None] = []
    for name in ("devices", "num_nodes"):
        node = part.get(name) if part is not None and part.kind == "map" else None
        known = node is not None and re.fullmatch(r"[1-9]\d{0,3}", node.text)
        if node is None or not known:
            found.append(None)
            continue
        quote = text.split("\n")[node.line - 1].strip()[:300]
        found.append(Count(int(node.text), Ref(label, f"line {line + node.line - 1}", quote), f"trainer.{name}"))
    return found[0], found[1]


def _script(command: list[Field]) -> int:
    """Where the program stands: a file, or the name behind -m."""
    for index, field in enumerate(command):
        if index and (field.text.endswith(".py") or command[index - 1].text == "-m"):
            return index
    return len(command)


def _options(words: list[Field]) -> Iterator[tuple[str, Field]]:
    """`--name value`, `--name=value`, and `name=value` as Hydra has it."""
    for word, following in zip_longest(words, words[1:]):
        name, equals, value = word.text.partition("=")
        if equals:
            yield name.lstrip("+"), word._replace(text=value)
        elif name.startswith("--") and following is not None and not following.text.startswith("--"):
            yield name, following


def _hosts(shell: Interpreter, given: list[tuple[str, Field]]) -> Count | None:
    """`--trainer.num_nodes 2`, `--num-nodes 2 --gpus 8` (nodes may be those of a graph without the GPUs),
    `--num-workers 32 --gpus-per-node 8`."""
    nodes, devices, workers = (_number(shell, given, pattern) for pattern in (_NODES, _DEVICES, _WORKERS))
    if nodes is not None and (devices is not None or "trainer" in nodes.said):
        return nodes
    if workers is None or devices is None or "node" not in devices.said or workers.number % devices.number:
        return None
    return workers._replace(number=workers.number // devices.number, exact=False)


def _number(shell: Interpreter, given: list[tuple[str, Field]], pattern: re.Pattern[str]) -> Count | None:
    for name, value in given:
        if pattern.fullmatch(name) and re.fullmatch(r"[1-9]\d{0,4}", value.text):
            return Count(int(value.text), shell.ref(value.line), name)
    return None


def _batch(shell: Interpreter, launch: Launch, file: Field) -> None:
    """A configuration of DeepSpeed that the script writes: its batch is that of a rank times steps times ranks."""
    written = written_before(file, shell.files)
    if written is None:
        return
    for problem in _refused(written):
        shell.clash(Clash(problem.name, shell.ref(written.line + problem.line - 1), problem.why, problem.fix))
        if problem.name == BATCH:
            return
    ranks = _ranks(launch)
    try:
        config = json.loads(written.text)
    except (ValueError, RecursionError):
        return
    if ranks is None or not isinstance(config, dict):
        return
    batch, micro, steps = (config.get(name) for name in (BATCH, MICRO, STEPS))
    if not isinstance(batch, int) or not all(part is None or isinstance(part, int) for part in (micro, steps)):
        return
    product = (micro or 1) * (steps or 1) * ranks
    if product < 1 or (batch == product if micro and steps else batch % product == 0):
        return
    known = " times ".join(str(part) for part in (micro, steps, f"{ranks} ranks") if part)
    why = f"{known} make {product}, and {BATCH} is {batch}: DeepSpeed refuses to start"
    row = next((i for i, line in enumerate(written.text.split("\n")) if f'"{BATCH}"' in line), 0)
    ref = shell.ref(written.line + row)
    shell.clash(Clash(BATCH, ref, why, f"Write {product}, or leave {BATCH} out.", (launch.ref,)))


def _refused(written: Written) -> Iterator[Problem]:
    from whichrank.source.formats import trainer_config, yaml_tree

    documents, _ = yaml_tree.parse(written.text, json=True)
    for document in documents[:1]:
        yield from trainer_config.deepspeed(document)


def _ranks(launch: Launch) -> int | None:
    """All ranks of the launch, where the file tells."""
    if not launch.program:
        return launch.started.number if launch.started is not None else None
    if launch.total is not None:
        return launch.total.number
    if launch.program == "deepspeed" and launch.slots is not None and launch.hosts is not None:
        return launch.per_host.number * launch.hosts.number if launch.per_host is not None else launch.slots.number
    hosts = launch.nodes or (launch.hosts if launch.program == "deepspeed" else None)
    if launch.per_host is None or (hosts is not None and not hosts.exact) or (hosts is None and launch.several):
        return None
    if hosts is None and launch.program == "deepspeed":
        return None  # a hostfile that is not at hand may name more
    return launch.per_host.number * (hosts.number if hosts is not None else 1)
