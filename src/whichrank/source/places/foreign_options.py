"""Options that belong to another launcher than the one they are given to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from whichrank.facts.variables.environment import counts
from whichrank.records.settings import Lost

if TYPE_CHECKING:
    from whichrank.source.shell.interpret import Interpreter
    from whichrank.source.shell.words import Field

OPEN_MPI, HYDRA = "Open MPI", "MPICH and Intel MPI"
# Options that only one of the two has (man mpirun of Open MPI 4 and 5, mpiexec.hydra -help); -np, -hosts, -bind-to and
# their like exist in both, or in some releases of both.
_ONLY = {
    OPEN_MPI: re.compile(
        r"--?g?mca|-x|--?map-by|--?rank-by|-H|--allow-run-as-root|--?npernode|--?oversubscribe|--?tag-output"
        r"|--?report-bindings|--?display-map"
    ),
    HYDRA: re.compile(r"-genv(?:list|all|none)?|-env(?:list|all|none)?|-ppn|-perhost|-bootstrap|-iface|-f|-rr"),
}
# Launcher -> options that hand variables over with other launchers, and what hands them over with this one.
_OF_OTHERS: dict[str, tuple[frozenset[str], str]] = {
    OPEN_MPI: (frozenset({"-genv", "-env", "-genvlist", "-envlist", "-e", "--env", "--export"}), "-x NAME=VALUE"),
    HYDRA: (frozenset({"-x", "-e", "--env", "--export"}), "-genv NAME VALUE"),
    "srun": (frozenset({"-x", "-e", "--env", "-env", "-genv", "-genvlist"}), "--export=ALL,NAME=VALUE"),
    "docker": (frozenset({"-x", "-genv", "--export"}), "-e NAME=VALUE"),
    "torchrun": (frozenset({"-x", "-e", "--env", "-genv", "--export"}), "export NAME=VALUE in front of the command"),
}
_TAKES = {
    ("srun", "-x"): "the hosts to leave out (--exclude)",
    ("srun", "-e"): "the file for error messages (--error)",
}
_SAME = {"sbatch": "srun", "podman": "docker", "nerdctl": "docker", "mpiexec.hydra": HYDRA, "orterun": OPEN_MPI}


def library(program: str, options: Sequence[Field]) -> str:
    """The MPI that the options of mpirun and mpiexec are written for: the one that more of them belong to."""
    if program in _SAME:
        return _SAME[program]
    count = {name: sum(bool(own.fullmatch(w.text)) for w in options) for name, own in _ONLY.items()}
    if count[OPEN_MPI] == count[HYDRA]:
        return ""
    return max(count, key=lambda name: count[name])


def check(shell: Interpreter, program: str, command: Sequence[Field], options: Sequence[Field]) -> Iterator[Lost]:
    """Variables that are handed over with an option of another launcher; command: the words behind the options too."""
    launcher = library(program, options) if program in {"mpirun", "mpiexec"} else _SAME.get(program, program)
    known, fix = _OF_OTHERS.get(launcher, (frozenset(), ""))
    for at, word in enumerate(command[: len(options) + 1]):
        option, equals, given = word.text.partition("=")
        if option not in known or (equals and not option.startswith("--")):
            continue
        following = given if equals else command[at + 1].text if at + 1 < len(command) else ""
        for name in _variables(following):
            why = f"{launcher} has no option {option} that passes variables on"
            if takes := _TAKES.get((program, option)):
                why = f"with {program} {option} takes {takes}"
            yield Lost(name, shell.ref(word.line), why, f"Write {fix}.".replace("NAME", name))


def _variables(text: str) -> list[str]:
    """Names of NAME, NAME=VALUE or NAME,NAME that are variables without doubt."""
    names = [part.partition("=")[0] for part in text.removeprefix("ALL,").split(",")]
    return [name for name in names if counts(name)]
