"""Directives of batch systems in a script: what they ask for, and the variables that they set."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from whichrank.facts.variables.releases import release_in
from whichrank.records.settings import UNKNOWN, Clash, Lost
from whichrank.source.shell import batch
from whichrank.source.shell.words import Value

if TYPE_CHECKING:
    from whichrank.source.shell.interpret import Interpreter
    from whichrank.source.shell.state import Environment


_IGNORED = "the directive stands behind the first command, where it is a comment: the scheduler ignores it"


def split_at_commas(shell: Interpreter, found: batch.Listed, line: int) -> None:
    for name, piece in found.split:
        why = f"the list of variables is split at commas: '{piece}' is taken for a variable of its own"
        fix = f"Export {name} in the script before the command, and let ALL carry it."
        lost = Lost(name, shell.ref(line), why, fix)
        if lost not in shell.out.lost:
            shell.out.lost.append(lost)


def directive(shell: Interpreter, comment: str, line: int, env: Environment, *, late: bool = False) -> None:
    system, given = batch.directive(comment)
    if late and comment.startswith(("#SBATCH", "#PBS")):
        for name, _ in batch.listed(given, system).sets if system else ():
            why = "it stands behind the first command, where directives are comments"
            shell.out.lost.append(Lost(name, shell.ref(line), why, "Move it to the top of the file."))
        option = re.match(r"#(?:SBATCH|PBS)\s+(--?[A-Za-z][\w-]*)", comment)
        if option and not system and all(clash.why != _IGNORED for clash in shell.out.clashes):
            shell.out.clashes.append(Clash(option[1], shell.ref(line), _IGNORED, "Move it to the top of the file."))
        return
    if batch.is_directive(comment):
        shell.release |= release_in(comment)
        shell.allocation = shell.allocation.directive(comment, line)
    if not system:
        return
    found = batch.listed(given, system)
    if system == "SBATCH":
        env.slurm, env.slurm_line = found.passes, line
    split_at_commas(shell, found, line)
    for name, text in found.sets:
        value = Value(re.sub(r"\$\{?\w+\}?", UNKNOWN, text))
        shell.assign(name, value, line, env, sure=True, exported=True)
