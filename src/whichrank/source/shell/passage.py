"""The way from one command to the next: what a program that starts another one does to its environment."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from whichrank.source.shell.words import Field

Passes = Callable[[str], bool]


class Passage(NamedTuple):
    """How a command gets from one process to the next."""

    rest: list[Field]
    """The command that is started; empty where the program itself stands for the training."""
    passes: Passes | None = None
    """None: every exported variable goes through."""
    sets: tuple[tuple[str, Field], ...] = ()
    """NAME and VALUE given on the way."""
    unsets: tuple[str, ...] = ()
    why: str = ""
    fix: str = ""
    remote: bool = False
    script: bool = False
    """The rest is shell text that another shell reads."""
    names: tuple[Field, ...] = ()
    """Variables that are passed on by name."""


TRANSPARENT = frozenset({
    "exec", "nohup", "time", "nice", "ionice", "numactl", "taskset", "timeout", "stdbuf", "setsid", "chrt", "command",
    "builtin", "nsys", "ncu", "strace", "ltrace", "gdb", "conda", "mamba", "micromamba", "poetry", "uv", "pipenv",
    "pdm", "hatch", "unbuffer", "xargs", "dumb-init", "tini",
    "gosu", "su-exec", "flock", "script", "watch", "tmux", "screen",
    "bsub", "blaunch", "jsrun", "aprun", "horovodrun", "enroot", "catchsegv", "parallel", "perf", "rocprof",
    "doppler", "op", "chpst", "pixi", "module", "wait", "lrun", "flux", "ibrun", "whichrank", "dlprof", "py-spy",
})  # fmt: skip


_TRAINING = frozenset({
    "torchrun", "accelerate", "deepspeed", "lightning", "colossalai", "composer", "fairseq-train",
    "fairseq-hydra-train", "litgpt", "tune", "axolotl", "llamafactory-cli", "torchx",
    "vllm", "trl", "oumi", "mlx.launch", "nemo", "python",
    "python3", "ray", "fabric", "torchtune", "swift", "xtuner", "dask-cuda-worker", "verl",
})  # fmt: skip


# Programs that start another one and do something to its environment; `launchers` says what.
LAUNCHERS = frozenset({
    "sudo", "doas", "su", "runuser", "env", "ssh", "rsh", "gcloud", "pdsh", "clush", "pssh", "parallel-ssh", "dsh",
    "pbsdsh", "srun", "sbatch", "salloc", "qsub", "mpirun", "mpiexec", "orterun", "mpiexec.hydra", "docker",
    "podman", "nerdctl", "nvidia-docker", "singularity", "apptainer", "kubectl", "oc", "systemd-run", "ray",
    "deepspeed",
})  # fmt: skip


SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh"})


_TRAINS = r"\.(?:sh|py|bash)$|_perf(?:_mpi)?$|(?:^|[/_-])(?:train|pretrain|finetune|worker)"


# A line for `python -c` that asks for a version or the number of GPUs starts nothing.
_TRAINS_INLINE = r"train|init_process_group|torch\.distributed\.(?!is_\w*available)|\bdist\.|spawn|launch|\bmain\("


_NOT_TRAINING = r"-m\s+(?:pip|venv|ensurepip|compileall|json|http|zipfile|build)\b|(?:^|/)setup\.py\b|^-V$"


def base(field: Field) -> str:
    return field.text.rsplit("/", 1)[-1]


def is_training(command: Sequence[Field]) -> bool:
    """The command (its program first) is, or most likely is, what runs the ranks."""
    program = base(command[0])
    if re.fullmatch(r"python[\d.]*", program) or program in _TRAINING:
        arguments = " ".join(field.text for field in command[1:4])
        if program == "ray":  # workers inherit what `ray start` has
            return len(command) > 1 and command[1].text == "start"
        inline = len(command) > 1 and command[1].text == "-c" and not re.search(_TRAINS_INLINE, arguments)
        return not inline and not re.search(_NOT_TRAINING, arguments) and arguments not in {"--version", "-V"}
    if program in SHELLS:
        return any(field.text.endswith((".sh", ".bash")) or not field.known for field in command[1:])
    if not command[0].known or command[0].text in {"$@", "$*"}:
        return True
    return bool(re.search(_TRAINS, program))


def is_known(program: str) -> bool:
    return program in _TRAINING or program in SHELLS or program in LAUNCHERS or program in TRANSPARENT


# One-letter options of launchers whose next word is a value.
_WITH_VALUE = frozenset(
    {"-n", "-N", "-c", "-w", "-p", "-J", "-o", "-e", "-t", "-A", "-q", "-H", "-np", "-x", "-D", "-C"}
)
# What stands in front of the name of a program that MPI reaches other hosts with: `--mca plm rsh`, `--launcher ssh`.
_NAMES_A_LAUNCHER = frozenset({
    "plm", "plm_rsh_agent", "pls", "--launcher", "-launcher", "--bootstrap", "-bootstrap", "--rsh", "-rsh", "-R",
    "--launch-agent", "-launcher-exec", "--bootstrap-exec", "-bootstrap-exec",
})  # fmt: skip


def command_at(words: Sequence[Field], start: int = 1) -> list[Field]:
    """The command among the arguments of a launcher: from the first word that names a program."""
    for index in range(start, len(words)):
        word = words[index]
        if word.text.startswith("-") or words[index - 1].text in _WITH_VALUE | _NAMES_A_LAUNCHER:
            continue
        program = base(word)
        if is_known(program) or re.fullmatch(r"python[\d.]*", program) or re.search(_TRAINS, program):
            return list(words[index:])
        if word.raw in {'"$@"', "$@", '"${@}"', "$*"}:
            return list(words[index:])
    return []


def option_values(words: Sequence[Field], names: frozenset[str]) -> Iterator[Field]:
    """Values of an option, given as `--name value`, `--name=value` or (one letter) `-nvalue`."""
    for index, word in enumerate(words):
        option, equals, value = word.text.partition("=")
        if word.text in names and index + 1 < len(words):
            yield words[index + 1]
        elif equals and option in names and option.startswith("--"):
            yield word._replace(text=value, raw=word.raw.partition("=")[2])
        elif len(word.text) > 2 and word.text[:2] in names and word.text[1] != "-":
            yield word._replace(text=word.text[2:], raw=word.raw[2:])


def pairs_of(fields: Iterator[Field] | Sequence[Field]) -> tuple[tuple[tuple[str, Field], ...], tuple[Field, ...]]:
    """NAME=VALUE given, and NAME alone."""
    sets: list[tuple[str, Field]] = []
    names: list[Field] = []
    for field in fields:
        name, equals, value = field.text.partition("=")
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            continue
        if equals:
            sets.append((name, field._replace(text=value)))
        else:
            names.append(field)
    return tuple(sets), tuple(names)


def only(names: Sequence[Field] | Sequence[str]) -> Passes:
    wanted = {name if isinstance(name, str) else name.text for name in names}
    return lambda name: name in wanted
