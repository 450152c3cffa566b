"""What a script comes to: the settings that reach the training, and those that don't, with the reason."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from whichrank.facts.variables.environment import counts, in_family
from whichrank.records.settings import UNKNOWN, Assignment, Lost, SettingsFile
from whichrank.source.shell.state import Made

if TYPE_CHECKING:
    from whichrank.source.shell.interpret import Interpreter


def conclude(shell: Interpreter) -> SettingsFile:
    out = shell.out
    last = max(shell.launches, default=0)
    for made in shell.made:
        label = shell.places.get(id(made), "")
        if not label and not made.dropped and not made.given:
            partial = made.value.text if UNKNOWN in made.value.text else ""
            ref = shell.ref(_spelled(shell, made), out.label)
            how = (made.how, made.used, made.sure)
            out.assignments.append(
                Assignment(made.name, made.text, ref, out.label, *how, None, partial, made.way, made.asked)
            )
        lost = None if made.dropped else _cut_off(shell, made, label) or _lost(shell, made, last, label)
        if lost is not None and lost not in out.lost:
            out.lost.append(lost)
    out.torch, out.nccl = out.torch or shell.release.torch, out.nccl or shell.release.nccl
    return out


_MOST_LINES = 5_000


def _spelled(shell: Interpreter, made: Made) -> int:
    """The line that spells an assignment out, where the text that is run was put together of others."""
    index = made.line - shell.first_line
    here = shell.lines[index] if 0 <= index < len(shell.lines) else ""
    if made.name in here or "$" not in here or not (counts(made.name) or in_family(made.name)):
        return made.line
    wanted = re.compile(rf"(?<!\w){made.name}=")
    rows = enumerate(shell.lines[:_MOST_LINES], shell.first_line)
    found = [(at, line) for at, line in rows if wanted.search(line)]
    whole = [each for each in found if f"{made.name}={made.value.text}" in each[1]] if len(found) > 1 else []
    return found[0][0] if len(found) == 1 else whole[0][0] if len(whole) == 1 else made.line


_SIGN = re.compile(r"([;|&])(?![\s;|&])([^\s;|&\"')]{1,200})")
_NO_PROGRAM = re.compile(r"(?!\w+=)[^/$]*[,:][^/$]*|[A-Z][A-Z0-9_]+")


def _cut_off(shell: Interpreter, made: Made, label: str) -> Lost | None:
    """`export NCCL_ALGO=allreduce:tree;allgather:ring`: a sign of the shell in a value without quotes ends it."""
    text, index = made.text, made.line - shell.first_line
    if label or not text or not counts(made.name) or not 0 <= index < len(shell.lines):
        return None
    before, found, rest = shell.lines[index][:5_000].partition(f"{made.name}={text}")
    sign = _SIGN.match(rest) if found else None
    if sign is None or before.rstrip().endswith("#") or not _NO_PROGRAM.fullmatch(sign[2]):
        return None
    why = f"the shell ends the value at '{sign[1]}' and takes {sign[2]} for a command"
    return Lost(made.name, shell.ref(made.line), why, f'Quote it: {made.name}="{text}{sign[1]}{sign[2]}"', "error")


def _lost(shell: Interpreter, made: Made, last: int, label: str) -> Lost | None:
    if not counts(made.name):
        return None
    ref = shell.ref(made.line, label or shell.out.label)
    if made.cut is not None and (not made.reached or made.cut.remote):
        where = f" (line {made.cut.line})" if made.cut.line else ""
        return Lost(made.name, ref, f"{made.cut.why}{where}", made.cut.fix.replace("NAME", made.name))
    if made.reached or not last or made.cut is not None or made.given:
        return None
    if label and made.how == "local":
        why = "the file is sourced without set -a and does not export it"
        return Lost(made.name, ref, why, f"Write: export {made.name}=…, or put set -a around the source command.")
    if made.how != "export":
        return None
    if made.order > last and made.level == 0:
        return Lost(made.name, ref, "it is set after the training was started", "Set it before the launch command.")
    if made.apart and made.order < last and not made.used:  # `-x NAME="$NAME"` hands the value on
        why = "it is set in a subshell, a pipeline or a process of its own, which ends before the training starts"
        return Lost(made.name, ref, why, "Export it in the script itself.")
    return None
