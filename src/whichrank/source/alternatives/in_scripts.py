"""Which way a script takes where nobody asks for another one: its arguments and switches are not given."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from whichrank.records.settings import UNKNOWN
from whichrank.source.shell.conditions import together, truth
from whichrank.source.shell.syntax import Case, If, Simple, Step, commands
from whichrank.source.shell.words import Lookup, Value, expand

if TYPE_CHECKING:
    from whichrank.source.shell.interpret import Interpreter

# What schedulers, launchers and hosts set: nobody asks for these.
_OF_THE_PLACE = re.compile(
    r"(?:SLURM|SBATCH|PBS|LSB|LSF|PMI|PMIX|OMPI|SKYPILOT|PET|COBALT|SGE|AWS|ECS|KUBERNETES|CUDA|NVIDIA|ROCR|HIP|SM|AZ"
    r"|TORCHELASTIC|FLUX|RAY)_\w{0,60}|\w{0,40}(?:RANK|NODES?|NODEID|HOSTS?|HOSTNAME|INDEX|CLUSTER\w{0,20}|WORLD_SIZE|PROCID|LOCALID)"
    r"|SITE|USER|HOME|PATH|LD_LIBRARY_PATH|PWD|SHELL|TERM|TMPDIR|SCRATCH|WORK|PROJECT|MASTER_\w{1,20}|N?GPUS?\w{0,20}"
    r"|JOB_COMPLETION_INDEX|CONDA_\w{1,40}|VIRTUAL_ENV|MODULE\w{0,40}|LMOD_\w{1,40}"
)
_OF_THE_USER = re.compile(r"[A-Z][A-Z0-9_]*|[1-9]")


def is_switch(name: str) -> bool:
    """A variable that a user may set, or an argument; not one that is there anyway."""
    return bool(_OF_THE_USER.fullmatch(name)) and not _OF_THE_PLACE.fullmatch(name)


def unasked(lookup: Lookup) -> Lookup:
    """Variables as they are where the user sets none and gives no arguments."""

    def find(name: str) -> Value | None:
        value = lookup(name)
        if value is not None and value.usual is not None and UNKNOWN in value.text:
            return Value(value.usual)
        if value is None and name == "#":
            return Value("0")
        if value is None and name in {"@", "*"}:
            return Value("")
        return Value("") if value is None and is_switch(name) else value

    return find


def usual(test: list[Step], lookup: Lookup) -> bool | None:
    """Whether a condition holds where nobody asks for anything; None where that depends on something else."""
    there, holds = unasked(lookup), None
    for step in test:
        one = True if _goes_on(step) else truth([step], there, usual=True)
        holds = together(step.after, holds, one) if step.after else one
    return holds


_SUCCEED = frozenset(
    {"cd", "source", ".", "export", "mkdir", "module", "conda", "set", "echo", "ulimit", "pip", "shift"}
)


def _goes_on(step: Step) -> bool:
    """A command that succeeds wherever the script is meant to run."""
    words = step.node.words if isinstance(step.node, Simple) else []
    return bool(words) and (words[0].raw in _SUCCEED or bool(re.match(r"[A-Za-z_]\w*=", words[0].raw)))


def of_branches(node: If, lookup: Lookup) -> list[bool | None]:
    """For `if`, each `elif` and `else`: True where it is taken by default, False where somebody has to ask for it."""
    found: list[bool | None] = []
    reached: bool | None = True
    for test, _ in node.branches:
        holds = usual(test, lookup)
        found.append(together("&&", reached, holds))
        reached = together("&&", reached, None if holds is None else not holds)
    return [*found, reached]


_ARGUMENT = re.compile(r"[\"']?\$(?:([1-9])|\{([1-9])(?::?[-?][^{}]{0,80})?\})[\"']?")


def is_argument(raw: str) -> bool:
    """`$1`: what the user gives."""
    return bool(_ARGUMENT.fullmatch(raw))


def of_arms(shell: Interpreter, node: Case, lookup: Lookup) -> list[bool | None]:
    """The same for the arms of a `case`."""
    subject = expand(node.subject.raw, unasked(lookup))
    every = ["*" in patterns for patterns, _ in node.arms]
    if UNKNOWN in subject.text:
        names = re.findall(r"\$\{?(\w+)", node.subject.raw)
        given = bool(names) and all(name in shell.arguments for name in names)
        return [False if given and not all_of_it else None for all_of_it in every]
    fits = [any(fnmatchcase(subject.text, expand(p, lookup).text) for p in patterns) for patterns, _ in node.arms]
    first = fits.index(True) if True in fits else -1
    return [at == first for at in range(len(fits))]


_MEASURES = re.compile(
    r"(?<![\w])(?:\w{2,20}_perf(?:_mpi)?\b|nccl[-_]?tests?\b|ib_(?:write|read|send)_(?:bw|lat)|\w{0,40}pre[-_]?flight"
    r"|\w{0,40}(?:net|health|sanity|fabric|link|nccl)[-_]?(?:check|test|probe)|osu_\w{2,40}|dcgmi\b|dcgmproftester)"
)


def measures(steps: list[Step]) -> bool:
    """A check or a measurement before the job: what it is given is not left on in the training."""
    return any(is_measurement(word.raw for word in node.words) for node in commands(steps))


def is_measurement(words: Iterable[str]) -> bool:
    """By the programs among the words of a command; options and scripts in quotes may be those of a training."""
    return any(
        _MEASURES.search(word) for word in words if not word.startswith("-") and len(word) < 200 and " " not in word
    )


def place(shell: Interpreter, body: list[Step]) -> str:
    """A name for the branch that is followed next."""
    first = next((word.line for command in commands(body) for word in command.words), 0)
    return f"line {first}, step {shell.clock}"


@contextmanager
def taking(shell: Interpreter, way: str, usually: bool | None) -> Iterator[None]:
    """Follow a branch: what is set on the way belongs to it, unless it is the one by default."""
    kept = shell.way, shell.asked
    if not usually:
        shell.way, shell.asked = way, shell.asked or usually is False
    yield
    shell.way, shell.asked = kept
